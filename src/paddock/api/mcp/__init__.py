"""MCP at the sandboxes' port 6060: from outside through the server's own port, from inside on their loopback."""
