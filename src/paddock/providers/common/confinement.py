"""Settings of every sandbox's confinement, whichever provider applies them, and checks of what a spec asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock import errors
from paddock.providers.base import IsolationLevel, SandboxSpec

INSIDE = "/run/paddock"
AGENT = f"{INSIDE}/agent"
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETUID")
"""What the sandbox's root needs to install packages and the agent to become any user; all others are dropped."""
_MASKED_PROC = """
acpi asound config.gz diskstats fs interrupts kallsyms kcore key-users keys kmsg kpagecgroup kpagecount
kpageflags latency_stats locks modules pagetypeinfo partitions pressure sched_debug scsi slabinfo timer_list
timer_stats vmallocinfo
"""
MASKED = tuple(f"/proc/{name}" for name in _MASKED_PROC.split())
READ_ONLY = ("/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/1")
"""``/proc/1`` is the agent: its files there (``oom_score_adj`` and others) belong to the sandbox's root."""
OPEN_FILES = 65_536
NO_CORE = 1
"""Not 0: with a piped ``core_pattern`` the kernel takes 0 as "no limit on the pipe" and starts the host's handler."""


def require_level(spec: SandboxSpec, level: IsolationLevel, where: str, remedy: str) -> None:
    """``level``: the one that there is. Raises where the spec asks for more."""
    if spec.isolation is not None and spec.isolation.rank > level.rank:
        raise errors.ConfinementUnavailable(
            f"{where} gives isolation level {level.value!r}, less than the {spec.isolation.value!r} that was asked "
            f"for. {remedy}",
            details={"level": level.value, "asked": spec.isolation.value},
        )


def require_mounts(spec: SandboxSpec, private: Sequence[Path], what: str) -> None:
    """Raises unless each is a directory of the host, with nothing of ``private`` in it and in nothing of that. To be
    asked again when it is started again: the host may have changed meanwhile."""
    for mount in spec.mounts:
        if not Path(mount.source).is_dir():
            raise errors.ConfinementUnavailable(f"There is no directory {mount.source!r} on the host to mount.")
        source = Path(mount.source).resolve()
        if any(one.is_relative_to(source) or source.is_relative_to(one) for one in private):
            raise errors.ConfinementUnavailable(f"{mount.source!r} is not for mounting: {what} is in it.")
