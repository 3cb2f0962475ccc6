"""How a container gets the agent: from a directory of this machine where the engine sees it, else from a volume of the
engine's, read-only in the container.

Its socket does not tell whether an engine sees our files: a server in a container, or an engine in a virtual machine or
behind a tunnel, has one all the same. The volume is the same for all sandboxes and named after what is in it, so it is
filled once for each version of the agent and of the certificate authorities that the operator added. The token only
tells that both ends are of the same build. What guards the agent's socket is that it is root's: whoever is the
sandbox's root may do everything that the agent may.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import secrets
import shutil
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.providers.common import certificates
from paddock.providers.common.programs import agent_for, architecture_of
from paddock.providers.common.seccomp.compiler import program
from paddock.providers.docker.container import (
    AGENT_FILE,
    FILTERS_FILE,
    INSTALLATION,
    START_DIRECTORY,
    SUDO_FILE,
    TOKEN_FILE,
    VOLUME_LABEL,
)
from paddock.providers.docker.engine import DockerEngine, EngineNotFound

_MOUNTED_AT = "/kit"
_NOT_THERE = ("bind source path does not exist", "no such file or directory")


class AgentVolume:
    def __init__(self, engine: DockerEngine, installation: str, architecture: str, authorities: Path | None) -> None:
        """Raises where there is no agent for the engine's machine."""
        self._engine = engine
        self._installation = installation
        self._agent = agent_for(architecture, "The engine's")
        self._filters = program(architecture_of(architecture))
        self._authorities = b"" if authorities is None else authorities.read_bytes()
        digest = hashlib.sha256(self._agent + self._filters + self._authorities).hexdigest()
        self.volume = f"paddock-kit-{digest[:20]}"
        self.token = digest[20:]
        self._filled = False
        self._filling = asyncio.Lock()

    async def ready(self, image: str) -> None:
        """In the engine when this returns. Any image will do: nothing of it is run."""
        async with self._filling:
            if not self._filled or not await self._engine.has_volume(self.volume):
                self._filled = False
                await self._fill(image)
                self._filled = True

    async def _fill(self, image: str) -> None:
        await self._engine.make_volume(self.volume, {VOLUME_LABEL: self.token})
        options = {"NoCopy": True}
        mount = {"Type": "volume", "Source": self.volume, "Target": _MOUNTED_AT, "VolumeOptions": options}
        async with _never_started(self._engine, self._installation, image, mount) as name:
            if not await self._engine.has_file(name, f"{_MOUNTED_AT}/{TOKEN_FILE}"):
                await self._engine.put(name, _MOUNTED_AT, self._packed())

    def _packed(self) -> bytes:
        """The token comes last: where it is, everything is."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            _add(archive, AGENT_FILE, self._agent, 0o755)
            sudo = tarfile.TarInfo(SUDO_FILE)
            sudo.type, sudo.linkname, sudo.mode = tarfile.LNKTYPE, AGENT_FILE, 0o755
            archive.addfile(sudo)
            _add(archive, FILTERS_FILE, self._filters, 0o444)
            if self._authorities:
                _add(archive, certificates.FILE, self._authorities, 0o444)
            _add(archive, TOKEN_FILE, self.token.encode(), 0o400)
        return packed.getvalue()


async def engine_sees(engine: DockerEngine, installation: str, folder: Path, image: str) -> bool:
    """Whether the engine sees this machine's files: it looks for one of ours in what it would mount.

    Any image will do. Raises :class:`EngineNotFound` where the engine has not got this one.
    """
    number = secrets.token_hex(6)
    directory = folder / f"probe-{number}"
    await asyncio.to_thread(_make, directory, number)
    mount = {"Type": "bind", "Source": str(directory), "Target": START_DIRECTORY, "ReadOnly": True}
    try:
        async with _never_started(engine, installation, image, mount) as name:
            return await engine.has_file(name, f"{START_DIRECTORY}/{number}")
    except EngineNotFound:
        raise
    except (errors.ProviderRefused, errors.ProviderUnavailable) as error:
        if any(sign in error.message.lower() for sign in _NOT_THERE):
            return False
        raise
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def _never_started(
    engine: DockerEngine, installation: str, image: str, mount: Mapping[str, Any]
) -> AsyncIterator[str]:
    """A container by which the engine looks at, or puts files into, what it mounts."""
    name = f"paddock-probe-{secrets.token_hex(6)}"
    body = {
        "Image": image,
        "Entrypoint": ["/paddock-probe"],
        "Labels": {INSTALLATION: installation},  # what a crash leaves is swept up with the rest
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    await engine.create(name, body)
    try:
        yield name
    finally:
        await asyncio.shield(engine.remove(name))


def _make(directory: Path, number: str) -> None:
    directory.mkdir(mode=0o755)
    (directory / number).touch()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
