"""MCP: the tools of a sandbox for whoever speaks the Model Context Protocol, and the user's own servers among them.

``endpoint`` answers on a :class:`~paddock.mcp.tool_host.Desk`; ``relay`` is the other side, a client of the servers
that a user brings. Run by itself (``python -m paddock.mcp``) it serves the machine that it runs on. The SDK costs a
second and tens of megabytes, so nothing here imports it before the first request that needs it.
"""
