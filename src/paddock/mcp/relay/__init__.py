"""The user's own MCP servers: started in the sandbox or reached from it, their tools among the sandbox's."""
