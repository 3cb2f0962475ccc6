"""The fake provider: a folder per sandbox, real processes, real files, and faults on demand.

It stands in for a real provider in tests. It behaves for real (commands run inside bubblewrap,
state survives a killed server, several servers may share one folder) but it is **not for production**: it sets no
limits on CPU, memory, disk or processes, it pauses with SIGSTOP rather than a freezer, it filters no system calls, and
a server run by root maps the sandbox's user to host root (without any capability).

What else differs from a real machine: ``user`` and ``root`` are the same uid 1000, and the file operations see the
sandbox's own directories, not what is mounted over them (``/usr``, ``/proc``, ``/dev``).
"""

from __future__ import annotations

from paddock.providers.fake.faults import FaultKind, FaultRule, Faults
from paddock.providers.fake.provider import FakeProvider

__all__ = ["FakeProvider", "FaultKind", "FaultRule", "Faults"]
