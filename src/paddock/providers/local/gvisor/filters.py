"""The system call filter inside a guest: the same as elsewhere, but for what gVisor does otherwise than Linux."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from paddock.providers.common.seccomp.compiler import program_of
from paddock.providers.common.seccomp.policy import Case, Condition, Decision, the_policy

_LINKS = {"lgetxattr": Decision("EOPNOTSUPP")}
"""Of a symbolic link it answers ``EBADF``, which every ``ls -l`` reports. Files have none there anyway, and so says
every other call about them."""
_NOT_TO_THE_AGENT = Decision("allow", (Case((Condition(0, (1,)),), "EPERM"),))
_SIGNALS = dict.fromkeys(("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), _NOT_TO_THE_AGENT)
"""Linux lets nobody inside end the first process; gVisor lets root, and the guest would end with it."""


@cache
def program(architecture: str) -> bytes:
    policy = the_policy()
    children, agent = {**policy.children, **_LINKS, **_SIGNALS}, {**policy.agent, **_LINKS}
    return program_of(replace(policy, children=children, agent=agent), architecture)
