"""Finds processes by their pid inside the sandbox or by the client's tag.

The client's parameters are stored as the process's note, so every server knows them, also after a restart. Those read
or written by this server are also cached here, within limits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from paddock import errors
from paddock.api.compat.e2b.envd.connect import Code, ConnectError
from paddock.api.compat.e2b.envd.fields import Fields
from paddock.machine.base import MAX_NOTE, Machine, ProcessInfo, ProcessStatus

_EXIT_KEPT = 30.0
"""Seconds for which an ended process can still be found."""
_MAX_CACHED = 20_000
_MAX_CACHED_LENGTH = 2048
"""Maximum characters of cached parameters; longer ones are read from the agent each time."""
_CUT = 4096


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The client's parameters of a process."""

    cmd: str
    args: list[str] = field(default_factory=list)
    envs: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tag: str | None = None

    def note(self) -> bytes:
        """Truncated if too long to be stored; listings then show truncated values."""
        note = self._encoded()
        if len(note) > MAX_NOTE:
            short = replace(self, args=[text[:_CUT] for text in self.args[:8]], envs={})
            note = short._encoded()
        return note if len(note) <= MAX_NOTE else b""

    @property
    def length(self) -> int:
        """Characters, plus an overhead per item."""
        items = [self.cmd, self.cwd or "", self.tag or "", *self.args, *self.envs, *self.envs.values()]
        return sum(len(item) + 50 for item in items)

    def document(self) -> dict[str, Any]:
        cwd = {} if self.cwd is None else {"cwd": self.cwd}
        return {"cmd": self.cmd, "args": self.args, "envs": self.envs, **cwd}

    def _encoded(self) -> bytes:
        return json.dumps({**self.document(), "tag": self.tag}, separators=(",", ":")).encode("ascii", "replace")


class Directory:
    def __init__(self) -> None:
        self._by_pid: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._configs: OrderedDict[tuple[str, str], ProcessConfig] = OrderedDict()

    def add(self, machine: Machine, info: ProcessInfo, config: ProcessConfig) -> None:
        if info.pid is not None:
            _put(self._by_pid, (machine.sandbox_id, info.pid), info.process_id)
        self._remember(machine, info, config)

    async def running(self, machine: Machine, selector: Fields) -> ProcessInfo:
        found = await self.find(machine, selector)
        if not found.running:
            raise _not_found(selector)
        return found

    async def find(self, machine: Machine, selector: Fields) -> ProcessInfo:
        """The running process; otherwise the latest one with this pid that ended within the last seconds."""
        if selector.has("tag"):
            return await self._by_tag(machine, selector)
        pid = selector.number("pid")
        if (known := self._by_pid.get((machine.sandbox_id, pid))) is not None:
            try:
                info = await machine.process(known)
            except errors.ProcessNotFound:
                self._by_pid.pop((machine.sandbox_id, pid), None)
            else:
                if info.running:
                    return info
        every = [info for info in await machine.processes() if info.pid == pid]
        return _latest(every, selector)

    async def listed(self, machine: Machine) -> list[tuple[ProcessInfo, ProcessConfig]]:
        """All running processes, including those started through other APIs."""
        running = [info for info in await machine.processes() if info.running]
        configs = await asyncio.gather(*(self._config(machine, info) for info in running))
        return list(zip(running, configs, strict=True))

    async def _by_tag(self, machine: Machine, selector: Fields) -> ProcessInfo:
        tag = selector.text("tag")
        recent = [info for info in await machine.processes() if info.running or _just_ended(info)]
        configs = await asyncio.gather(*(self._config(machine, info) for info in recent))
        return _latest([info for info, config in zip(recent, configs, strict=True) if config.tag == tag], selector)

    async def _config(self, machine: Machine, info: ProcessInfo) -> ProcessConfig:
        name = (machine.sandbox_id, info.process_id)
        if (known := self._configs.get(name)) is None:
            try:
                note = await machine.note(info.process_id)
            except errors.ProcessNotFound:  # removed meanwhile
                note = b""
            known = _parse(note) or ProcessConfig("/bin/bash", ["-c", info.label])
            self._remember(machine, info, known)
        return known

    def _remember(self, machine: Machine, info: ProcessInfo, config: ProcessConfig) -> None:
        """Length and number are controlled by the client, so long entries are not cached: one user must not fill this
        server's memory."""
        if config.length <= _MAX_CACHED_LENGTH:
            _put(self._configs, (machine.sandbox_id, info.process_id), config)


def _put(kept: OrderedDict[Any, Any], name: Any, value: Any) -> None:
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > _MAX_CACHED:
        kept.popitem(last=False)


def _parse(note: bytes) -> ProcessConfig | None:
    """None if the note is not ours. It comes from inside the sandbox and is untrusted."""
    try:
        found = json.loads(note) if note else None
        if not isinstance(found, dict):
            return None
        said = Fields(found)
        cwd, tag = (said.text(name) if said.has(name) else None for name in ("cwd", "tag"))
        return ProcessConfig(said.text("cmd"), said.texts("args"), said.mapping("envs"), cwd, tag)
    except (ValueError, RecursionError, ConnectError):
        return None


def _latest(found: list[ProcessInfo], selector: Fields) -> ProcessInfo:
    for info in reversed(found):
        if info.running:
            return info
    for info in reversed(found):
        if _just_ended(info):
            return info
    raise _not_found(selector)


def _just_ended(info: ProcessInfo) -> bool:
    if info.ended_at is None or info.status is ProcessStatus.LOST:
        return False
    return time.time() - info.ended_at <= _EXIT_KEPT


def _not_found(selector: Fields) -> ConnectError:
    name = f"tag {selector.text('tag')}" if selector.has("tag") else f"pid {selector.number('pid')}"
    return ConnectError(Code.NOT_FOUND, f"process with {name} not found")
