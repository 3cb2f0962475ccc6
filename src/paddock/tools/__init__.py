"""The catalogue of tools: what an agent can do in a sandbox, each a typed function on Machine.

MCP, LangChain, the HTTP API and the command line are views of it; none of them has tools of its own.
"""
