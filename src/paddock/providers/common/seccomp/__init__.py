"""The system-call filter of a sandbox: a readable policy (``policy.toml``) and its compiler.

:func:`~paddock.providers.common.seccomp.compiler.program` gives the bytes that the agent's ``--filter`` reads.
"""
