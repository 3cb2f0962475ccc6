"""The system call filter inside a guest: the same as elsewhere, but for what gVisor answers wrongly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from paddock.providers.local.seccomp.compiler import program_of
from paddock.providers.local.seccomp.policy import Case, Condition, Decision, the_policy

_NO_AUTOMOUNT = 0x800
_STATX = Decision("allow", (Case((Condition(2, (_NO_AUTOMOUNT,), _NO_AUTOMOUNT),), "ENOSYS"),))
"""Versions up to 2023 call this flag invalid, which ``ls`` sets. Told that there is no such call, every libc does
without it."""


@cache
def program(architecture: str) -> bytes:
    policy = the_policy()
    children, agent = {**policy.children, "statx": _STATX}, {**policy.agent, "statx": _STATX}
    return program_of(replace(policy, children=children, agent=agent), architecture)
