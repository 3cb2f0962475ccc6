"""The catalogue of tools: what an agent can do in a sandbox, each one typed function on Machine.

MCP, LangChain, the HTTP API and the command line are views of it; none of them has a tool of its own.
"""
