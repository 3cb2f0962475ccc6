"""MCP: a sandbox's tools for clients of the Model Context Protocol, including those of the user's own MCP servers.

``endpoint`` serves requests on a :class:`~paddock.mcp.tool_host.ToolHost`; ``relay`` is the client side, for the user's
own servers. ``python -m paddock.mcp`` serves the machine that it runs on. Importing the SDK takes a second and tens of
megabytes, so nothing here imports it before the first request that needs it.
"""
