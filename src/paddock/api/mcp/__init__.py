"""MCP on port 6060 of each sandbox: from outside through the server's own port, from inside on the sandbox's
loopback."""
