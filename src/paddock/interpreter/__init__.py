"""The code interpreter: installs its program in a sandbox, and communicates with it.

The program is :mod:`paddock.interpreter.inside`. It implements E2B's interpreter protocol on a port of the sandbox:
E2B's SDKs use it through the gateway, and the native ``run_code`` through the machine.
"""

PORT = 49999
"""The port that E2B's SDKs use."""
