"""Words for the tests of the local provider: a place where sandboxes live, and the inside of one of them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.providers.base import Layer, Resources, SandboxSpec
from paddock.providers.common.record import RunningProcess, SandboxRecord, start_time
from paddock.providers.local import LocalProvider
from tests.conformance.shell import Shell
from tests.support.waiting import until

PRIVILEGED = os.geteuid() == 0
as_root = pytest.mark.skipif(not PRIVILEGED, reason="an ordinary user of the host cannot have this")
as_ordinary_user = pytest.mark.skipif(PRIVILEGED, reason="this is what an ordinary user gets; root gets more")


class Inside(Shell):
    """A shell in one sandbox, as any of its users."""

    @property
    def sandbox_id(self) -> str:
        return self.machine.sandbox_id

    async def says(self, script: str, *, user: str = "user") -> str:
        """What a script that must succeed prints."""
        ran = await self.run(script, user=user)
        assert ran.code == 0, f"{script!r} ended with {ran.code}: {ran.text} {ran.err.decode()}"
        return ran.text


class Place:
    """One installation: its home, and the provider that works on it now."""

    def __init__(self, home: Path, made: Path, **options: Any) -> None:
        self.home = home
        self.root = home / "local"
        self.templates = home / "templates"
        self._made = made
        self._options = options
        self.provider = self.build()

    def build(self) -> LocalProvider:
        """As another server on the same home would."""
        return LocalProvider(self.root, made=self._made, **self._options)

    async def restart(self) -> LocalProvider:
        await self.provider.close()
        self.provider = self.build()
        await self.provider.start()
        return self.provider

    async def clear(self) -> None:
        await self.delete_all()
        await self.provider.close()

    async def delete_all(self) -> None:
        for found in await self.provider.list():
            await self.provider.delete(found.sandbox_id)
        for shape, count in (await self.provider.warmed()).items():
            await self.provider.cool(shape, count)

    def spec(self, **changes: Any) -> SandboxSpec:
        given: dict[str, Any] = {
            "sandbox_id": f"tester_{secrets.token_hex(4)}",
            "key": "i" + secrets.token_hex(10),
            "owner_id": "owner",
            "user_id": "tester",
            "template_id": "host",
            "resources": Resources(cpu=1.0, memory_mb=256, disk_mb=128, pids=128),
        }
        return SandboxSpec(**{**given, **changes})

    async def create(self, **changes: Any) -> Inside:
        spec = self.spec(**changes)
        await self.provider.create(spec)
        return await self.inside(spec.sandbox_id)

    async def inside(self, sandbox_id: str) -> Inside:
        return Inside(await self.provider.attach(sandbox_id))

    def folder(self, sandbox_id: str) -> Path:
        return self.root / "sandboxes" / sandbox_id

    def record(self, sandbox_id: str) -> SandboxRecord:
        record = SandboxRecord.load(self.folder(sandbox_id))
        assert record is not None
        return record

    def running(self, sandbox_id: str) -> RunningProcess:
        running = self.record(sandbox_id).running
        assert running is not None
        return running

    async def layer(self, sandbox_id: str, name: str) -> Layer:
        report = await self.provider.isolation(sandbox_id)
        return next(layer for layer in report.layers if layer.name == name)

    async def need(self, sandbox_id: str, name: str) -> None:
        """Skip where this machine does not have that layer, and say what the report says about it."""
        layer = await self.layer(sandbox_id, name)
        if not layer.active:
            pytest.skip(f"no {name} here: {layer.detail}")

    async def end(self, sandbox_id: str) -> None:
        """Its processes, from outside, as a crash of the host would; nothing gets to be written or said."""
        pid = self.running(sandbox_id).pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: start_time(pid) is None)

    def pretend_reboot(self, sandbox_id: str) -> None:
        """The record of another boot; what this boot gave it besides is taken away as a reboot does."""
        record = self.record(sandbox_id)
        assert record.running is not None
        record.with_running(replace(record.running, boot_id="00000000-0000-0000-0000-000000000000")).save(
            self.folder(sandbox_id)
        )
        if record.running.group is not None:
            record.running.group.remove()
        if record.running.uid_slot is not None:
            Path(f"/run/paddock/uids/{record.running.uid_slot}").unlink()


def rm_rf(path: Path) -> None:
    """As somebody does by hand. To an ordinary user some directories of overlays are shut, and stay."""
    subprocess.run(["rm", "-rf", path], capture_output=True, check=PRIVILEGED)
