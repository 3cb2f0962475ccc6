"""Words for the tests of the Docker provider: an installation on a real engine, and somebody between the two."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path
from typing import Any

from paddock.providers.base import Layer, Resources, SandboxSpec
from paddock.providers.docker import DockerProvider
from paddock.providers.docker.address import Address
from paddock.providers.docker.container import INSTALLATION
from tests.docker import engine
from tests.local.place import Inside

__all__ = ["Inside", "Meddler", "Place"]


class Place:
    """One installation: its home, and the provider that works on it now."""

    def __init__(self, home: Path, address: Address, **options: Any) -> None:
        self.root = home / "docker"
        self.address = address
        self._options = {"images": [engine.DEBIAN, engine.SCRATCH], **options}
        self.keys: dict[str, str] = {}
        self.provider = self.build()

    def build(self) -> DockerProvider:
        """As another server on the same home would."""
        return DockerProvider(self.root, address=self.address, **self._options)

    async def restart(self) -> DockerProvider:
        await self.provider.close()
        self.provider = self.build()
        await self.provider.start()
        return self.provider

    async def clear(self) -> None:
        for found in await self.provider.list():
            await self.provider.delete(found.sandbox_id)
        for shape, count in (await self.provider.warmed()).items():
            await self.provider.cool(shape, count)
        await self.provider.close()

    def spec(self, **changes: Any) -> SandboxSpec:
        given: dict[str, Any] = {
            "sandbox_id": f"tester_{secrets.token_hex(4)}",
            "key": "i" + secrets.token_hex(10),
            "owner_id": "owner",
            "user_id": "tester",
            "template_id": self._options["images"][0],
            "resources": Resources(disk_mb=256),
        }
        return SandboxSpec(**{**given, **changes})

    async def create(self, **changes: Any) -> Inside:
        spec = self.spec(**changes)
        self.keys[spec.sandbox_id] = spec.key
        await self.provider.create(spec)
        return await self.inside(spec.sandbox_id)

    async def inside(self, sandbox_id: str) -> Inside:
        return Inside(await self.provider.attach(sandbox_id))

    async def container(self, sandbox_id: str) -> str:
        found = await self.provider.inspect(sandbox_id)
        assert found is not None
        return found.reference

    async def layer(self, sandbox_id: str, name: str) -> Layer:
        report = await self.provider.isolation(sandbox_id)
        return next(layer for layer in report.layers if layer.name == name)

    def containers(self) -> list[str]:
        """What the engine has of this installation, whoever knows of it."""
        label = f"{INSTALLATION}={(self.root / 'installation').read_text()}"
        return sorted(found["Names"][0].lstrip("/") for found in engine.containers(label))

    def leftovers(self) -> list[str]:
        """Containers and folders of sandboxes that are not there any more."""
        folders = ("sandboxes", "warm", "drafts", "trash", "births")
        return self.containers() + [str(path) for name in folders for path in (self.root / name).iterdir()]


class Meddler:
    """Stands between a provider and its engine, and lets through what it likes."""

    def __init__(self, folder: Path, target: Address) -> None:
        assert target.socket is not None
        self.address = Address.unix(str(folder / "meddler.sock"))
        self.silent = asyncio.Event()
        """Set when a request came that is not answered."""
        self._target = target.socket
        self._cut = self._swallow = self._hush = ""
        self._down = False
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self, part: str) -> None:
        """The next request with this in its first line never gets to the engine: the connection ends."""
        self._cut = part

    def swallow(self, part: str) -> None:
        """It gets there and is carried out, but nobody hears the answer."""
        self._swallow = part

    def hush(self, part: str) -> None:
        """It is neither answered nor ended."""
        self._hush = part

    def down(self, down: bool) -> None:
        """As if the engine were stopped: nobody is there."""
        self._down = down

    def sever(self) -> None:
        """All that is connected now is not any more."""
        for writer in list(self._open):
            writer.transport.abort()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._guest, self.address.socket)

    async def close(self) -> None:
        for writer in self._open:
            writer.close()
        self._server.close()

    async def _guest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            return
        head = await reader.readuntil(b"\r\n")
        line = head.decode()
        if self._cut and self._cut in line:
            self._cut = ""
            return
        if self._hush and self._hush in line:
            self._hush = ""
            self.silent.set()
            await reader.read()
            return
        deaf = bool(self._swallow) and self._swallow in line
        if deaf:
            self._swallow = ""
        there, back = await asyncio.open_unix_connection(self._target)
        back.write(head)
        forth = asyncio.create_task(_pour(reader, back))
        try:
            if deaf:
                await there.readuntil(b"\r\n")
            else:
                await _pour(there, writer)
        finally:
            forth.cancel()
            await asyncio.gather(forth, return_exceptions=True)
            back.close()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
