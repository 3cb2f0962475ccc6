"""The user's own MCP servers: started in the sandbox or reached from it, with their tools added to the sandbox's."""
