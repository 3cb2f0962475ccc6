"""The code interpreter: how its program gets into a sandbox, and how the server talks to it there.

The program itself is :mod:`paddock.interpreter.inside`. It speaks E2B's interpreter protocol on a port of the
sandbox, so an E2B SDK reaches it through the gateway, and the native ``run_code`` through the machine.
"""

PORT = 49999
"""Where E2B's SDKs expect it."""
