"""Installs the interpreter in a sandbox: the program always, the kit if the sandbox's Python needs it.

Everything goes through the Machine, so it works on every provider. It is done once per sandbox; concurrent
installations are harmless, because the unpacked directory is renamed at the end.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.ids import new_process_id
from paddock.interpreter import PORT, archive, kit
from paddock.interpreter.archive import Archive, Source
from paddock.interpreter.kit_download import KitDownload
from paddock.machine.base import DEFAULT_USER, Machine, ProcessSpec
from paddock.machine.threads import in_thread

PYTHON = "python3"
_FOLDER = "/opt/paddock/interpreter"
_PACKAGE = "paddock_interpreter"
_INSIDE = Path(__file__).with_name("inside")
_SECONDS = 60.0
_CHUNK = 1 << 20

_PROBE = """
import importlib.util, json, os, sys, sysconfig
needed = ("ipykernel", "jupyter_client", "IPython", "zmq", "tornado", "traitlets")
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (AttributeError, OSError, ValueError):  # another C library
    libc = ""
found = {
    "version": "%d.%d.%d" % sys.version_info[:3],
    "libc": libc,
    "usable": sys.version_info >= (3, 9),
    "abi": str(sysconfig.get_config_var("SOABI")),
    "has_kernels": all(importlib.util.find_spec(name) for name in needed),
    "there": os.listdir(sys.argv[1]) if os.path.isdir(sys.argv[1]) else [],
}
print(json.dumps(found))
"""

_UNPACK = """
import compileall, os, shutil, subprocess, sys, tarfile
folder, name, archive, tag = sys.argv[1:5]
target, unfinished = os.path.join(folder, name), archive + ".unpacked"
try:
    os.mkdir(unfinished)
    # The system's tar takes a quarter of the time.
    if not shutil.which("tar") or subprocess.call(["tar", "-xf", archive, "-C", unfinished]):
        with tarfile.open(archive) as tar:
            tar.extractall(unfinished)
    if sys.implementation.cache_tag != tag:
        compileall.compile_dir(unfinished, quiet=2)
    for place, folders, _ in os.walk(unfinished):
        os.chmod(place, 0o755)
    if not os.path.isdir(target):
        os.rename(unfinished, target)
finally:
    os.unlink(archive)
    shutil.rmtree(unfinished, ignore_errors=True)
"""


@dataclass(frozen=True, slots=True)
class _Probed:
    version: str
    usable: bool
    abi: str
    libc: str
    """"glibc 2.36", or empty."""
    has_kernels: bool
    there: frozenset[str]


class Installation:
    """``folder`` contains the archives that this server sends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._making = asyncio.Lock()
        self._made: tuple[Archive, Archive | None] | None = None
        self._download = KitDownload(folder)

    async def prepare(self) -> None:
        """Build the archives ahead of time, which takes a second on a new installation."""
        await self._archives()

    async def install(self, machine: Machine) -> list[str]:
        """Install the interpreter, and return the command that starts it in this sandbox."""
        program, packages = await self._archives()
        probed = await self._probe(machine)
        needed = [program]
        if not probed.has_kernels:
            fits = probed.abi == kit.abi()
            needed.append(packages if packages and fits else await self._download.get(probed.abi, probed.libc))
        for each in needed:
            if each.name not in probed.there:
                await self._unpack(machine, each)
        entry = f"{_FOLDER}/{program.name}/{_PACKAGE}/__main__.py"
        own = [] if probed.has_kernels else ["--kit", f"{_FOLDER}/{needed[-1].name}"]
        return [PYTHON, "-E", "-s", entry, "supervisor", "--port", str(PORT), *own]

    async def _archives(self) -> tuple[Archive, Archive | None]:
        async with self._making:
            if self._made is None:
                self._made = await _program(self._folder), await kit.make(self._folder)
            return self._made

    async def _probe(self, machine: Machine) -> _Probed:
        said = await _run(machine, [PYTHON, "-E", "-c", _PROBE, _FOLDER], DEFAULT_USER, "look at Python")
        try:
            found = json.loads(said)
            names = {name: str(found[name]) for name in ("version", "abi", "libc")}
            there = frozenset(map(str, found["there"]))
            probed = _Probed(**names, usable=bool(found["usable"]), has_kernels=bool(found["has_kernels"]), there=there)
        except (ValueError, TypeError, KeyError):
            raise errors.ProviderRefused(f"The sandbox's Python printed something unexpected: {said[:200]!r}") from None
        if not probed.usable:
            raise errors.InterpreterMissing(
                f"Running code needs Python 3.9 or later; the sandbox has {probed.version}."
            )
        return probed

    async def _unpack(self, machine: Machine, sent: Archive) -> None:
        arrived = f"{_FOLDER}/{sent.name}.{secrets.token_hex(4)}"
        await machine.write_file(arrived, _chunks(sent.path), atomic=False, user="root")
        tag = str(sys.implementation.cache_tag)
        await _run(machine, [PYTHON, "-c", _UNPACK, _FOLDER, sent.name, arrived, tag], "root", "unpack the interpreter")


async def _program(folder: Path) -> Archive:
    places, fingerprint = await in_thread(_program_files)
    sources = (Source(path, place) for path, place in places.items())
    return await archive.make(folder, "program", f"{sys.implementation.cache_tag}\n{fingerprint}", sources)


def _program_files() -> tuple[dict[Path, str], str]:
    """The place of each in the archive, and what tells one version of all of them from another."""
    files = sorted(path for path in _INSIDE.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    places = {path: f"{_PACKAGE}/{path.relative_to(_INSIDE).as_posix()}" for path in files}
    return places, "\n".join(f"{place}\n{path.read_text()}" for path, place in places.items())


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await in_thread(path.open, "rb") as file:
        while chunk := await in_thread(file.read, _CHUNK):
            yield chunk


async def _run(machine: Machine, argv: list[str], user: str, what: str) -> str:
    spec = ProcessSpec(new_process_id(), argv, cwd="/", user=user, hard_timeout=_SECONDS, label=f"interpreter: {what}")
    ended, stdout, stderr = await machine.run(spec, _SECONDS + 5)
    if ended.exit_code == 127:
        raise errors.InterpreterMissing(f"Running code needs a {PYTHON} in the sandbox, and there is none.")
    if ended.exit_code != 0:
        said = stderr.data.decode(errors="replace").strip()[-500:]
        raise errors.ProviderRefused(f"The sandbox could not {what}: {said or ended.status.value}")
    return stdout.data.decode(errors="replace")
