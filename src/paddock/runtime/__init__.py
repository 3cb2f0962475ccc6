"""Operations inside a sandbox: commands, files, code, services, tools, MCP servers."""
