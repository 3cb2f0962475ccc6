"""Whether the engine sees this machine's files. Its socket does not tell: a server in a container, or an engine in a
virtual machine or behind a tunnel, has one all the same.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path

from paddock import errors
from paddock.providers.docker.container import BIRTH, INSTALLATION
from paddock.providers.docker.engine import DockerEngine, EngineNotFound

_NOT_THERE = ("bind source path does not exist", "no such file or directory")


async def engine_sees(engine: DockerEngine, installation: str, folder: Path, image: str) -> bool:
    """By a container that is never started: the engine looks for a file of ours in what it would mount.

    Any image will do. Raises :class:`EngineNotFound` where the engine has not got this one.
    """
    number = secrets.token_hex(6)
    directory = folder / f"probe-{number}"
    await asyncio.to_thread(_make, directory, number)
    probe = f"paddock-probe-{number}"
    mount = {"Type": "bind", "Source": str(directory), "Target": BIRTH, "ReadOnly": True}
    body = {
        "Image": image,
        "Entrypoint": ["/paddock-probe"],
        "Labels": {INSTALLATION: installation},  # what a crash leaves is swept up with the rest
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    try:
        await engine.create(probe, body)
        try:
            return await engine.has_file(probe, f"{BIRTH}/{number}")
        finally:
            await asyncio.shield(engine.remove(probe))
    except EngineNotFound:
        raise
    except (errors.ProviderRefused, errors.ProviderUnavailable) as error:
        if any(sign in error.message.lower() for sign in _NOT_THERE):
            return False
        raise
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _make(directory: Path, number: str) -> None:
    directory.mkdir(mode=0o755)
    (directory / number).touch()
