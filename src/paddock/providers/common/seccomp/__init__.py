"""The seccomp filter of a sandbox: a readable policy (``policy.toml``) and its compiler.

:func:`~paddock.providers.common.seccomp.compiler.program` returns the bytes for the agent's ``--filter``.
"""
