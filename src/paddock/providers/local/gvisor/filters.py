"""The system call filter inside a guest: the same as elsewhere, but for what gVisor answers wrongly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from paddock.providers.local.seccomp.compiler import program_of
from paddock.providers.local.seccomp.policy import Decision, the_policy

_OTHERWISE = {"lgetxattr": Decision("EOPNOTSUPP")}
"""Of a symbolic link it answers ``EBADF``, which every ``ls -l`` reports. Files have none there anyway, and so says
every other call about them."""


@cache
def program(architecture: str) -> bytes:
    policy = the_policy()
    children, agent = {**policy.children, **_OTHERWISE}, {**policy.agent, **_OTHERWISE}
    return program_of(replace(policy, children=children, agent=agent), architecture)
