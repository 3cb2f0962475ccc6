"""What is done in a sandbox: commands, files, code, services, tools, MCP servers."""
