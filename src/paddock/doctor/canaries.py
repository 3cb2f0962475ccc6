"""Targets placed on the host: secrets in files, processes, sockets and the server's environment.

Attempts refer to them by name. A canary that this machine cannot provide is None; attempts that need it are not tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import platform
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from paddock import errors

_NAME_TO_HANDLE = {"x86_64": 303, "aarch64": 264}.get(platform.machine(), -1)
_AT_FDCWD = -100
_SECONDS = 20.0

Canaries = Mapping[str, str | None]


@contextlib.asynccontextmanager
async def place_canaries(server_folder: Path) -> AsyncIterator[Canaries]:
    """Create all canaries for the duration of the context. ``server_folder``: where the sandboxes are stored."""
    secret = secrets.token_hex(12)
    with _files(secret) as files, _in_environment(secret):
        async with _process(secret, Path(files["folder"])) as facts:
            yield {**_facts(server_folder), **_handle(Path(files["file"])), **files, **facts}


def harm_to_host(canaries: Canaries) -> str | None:
    """What was changed on the host, or None: the file is unchanged, no file was added, and the process lives."""
    folder, file = Path(str(canaries["folder"])), Path(str(canaries["file"]))
    if file.read_text() != f"{canaries['secret']}\n":
        return "a file of the host was changed"
    if {path.name for path in folder.iterdir()} != {file.name, "socket"}:
        return "a file was made on the host"
    if not Path(f"/proc/{canaries['pid']}/cmdline").read_text():
        return "a process of the host was ended"
    return None


@contextlib.contextmanager
def _files(secret: str) -> Iterator[dict[str, str]]:
    """A file that every user of the host may read, and its metadata."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-canary-"))
    try:
        folder.chmod(0o755)
        file = folder / f"secret-{secret[:8]}"
        file.write_text(f"{secret}\n")
        file.chmod(0o644)
        yield {
            "secret": secret,
            "folder": str(folder),
            "file": str(file),
            "file_name": file.name,
            "abstract": f"{secret}-socket",
            "socket": str(folder / "socket"),
            "mark": f"paddock-canary-{secret[:8]}",
            "disk_major": str(os.major(folder.stat().st_dev)),
            "disk_minor": str(os.minor(folder.stat().st_dev)),
        }
    finally:
        shutil.rmtree(folder)


def _facts(server_folder: Path) -> Canaries:
    return {
        "server_folder": str(server_folder),
        "machine_id": _first_line(Path("/etc/machine-id")),
        "host_name": platform.node() or None,
    }


@contextlib.contextmanager
def _in_environment(secret: str) -> Iterator[None]:
    name = f"PADDOCK_CANARY_{secret[:8]}"
    os.environ[name] = secret
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.asynccontextmanager
async def _process(secret: str, folder: Path) -> AsyncIterator[Canaries]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "paddock.doctor.canary", secret, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise errors.PaddockError("The canary has no pipes.")
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _SECONDS)
        if not line:
            raise errors.PaddockError("The canary on the host did not start.")
        yield json.loads(line)
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            await asyncio.wait_for(process.wait(), _SECONDS)


def _handle(path: Path) -> Canaries:
    """The file's kernel handle, if the file system supports handles."""

    class Handle(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128))

    handle, mount = Handle(size=128), ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0)
    if _NAME_TO_HANDLE < 0 or libc.syscall(_NAME_TO_HANDLE, _AT_FDCWD, *arguments) < 0:
        return {"handle_type": None, "handle": None}
    return {"handle_type": str(handle.type), "handle": bytes(handle.bytes[: handle.size]).hex()}


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
