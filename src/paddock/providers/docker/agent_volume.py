"""What a container needs of ours where it can share no directory with us: in a volume of the engine's, read-only there.

It is the same for all sandboxes and named after what is in it, so it is brought once for each version of the agent and
of the certificate authorities that the operator added. The token only tells that both ends are of the same build. What
guards the agent's socket is that it is root's: whoever is the sandbox's root may do everything that the agent may.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import secrets
import tarfile
from pathlib import Path

from paddock import errors
from paddock.providers.common import certificates
from paddock.providers.common.programs import Programs
from paddock.providers.common.seccomp.compiler import program
from paddock.providers.docker.container import AGENT_FILE, FILTERS_FILE, INSTALLATION, KIT, SUDO_FILE, TOKEN_FILE
from paddock.providers.docker.engine import DockerEngine

_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}
_INSIDE = "/kit"


class AgentVolume:
    def __init__(self, engine: DockerEngine, installation: str, architecture: str, authorities: Path | None) -> None:
        """Raises where there is no agent for the engine's machine."""
        machine = _NAMES.get(architecture, architecture)
        self._engine = engine
        self._installation = installation
        self._agent = _agent_for(machine)
        self._filters = program(machine)
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
        """By a container that is never started: the engine puts files into what it mounts."""
        await self._engine.make_volume(self.volume, {KIT: self.token})
        porter = f"paddock-porter-{secrets.token_hex(6)}"
        mount = {"Type": "volume", "Source": self.volume, "Target": _INSIDE, "VolumeOptions": {"NoCopy": True}}
        body = {
            "Image": image,
            "Entrypoint": [f"{_INSIDE}/{AGENT_FILE}"],
            "Labels": {INSTALLATION: self._installation},  # what a crash leaves is swept up with the rest
            "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
        }
        await self._engine.create(porter, body)
        try:
            if not await self._engine.has_file(porter, f"{_INSIDE}/{TOKEN_FILE}"):
                await self._engine.put(porter, _INSIDE, self._packed())
        finally:
            await asyncio.shield(self._engine.remove(porter))

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


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _agent_for(machine: str) -> bytes:
    path: Path = Programs.find().agent.parent.parent / machine / "paddock-agent"
    try:
        return path.read_bytes()
    except OSError:
        raise errors.ProviderRefused(
            f"The engine's machine is of the kind {machine!r}, for which this installation of Paddock has no agent. "
            "A wheel that was built with the ziglang package has those for x86_64 and aarch64."
        ) from None
