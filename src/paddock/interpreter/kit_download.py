"""Downloads the kit for a sandbox's Python, when the first sandbox with such a Python runs code.

The packages are those of ``kit.lock``, with their hashes, as wheels: none of their code runs on the server. They come
from the index configured for pip (``PIP_INDEX_URL``, ``pip.conf``) or uv (``UV_DEFAULT_INDEX``), and are stored as an
archive, so each server downloads them once per kind of Python.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddock import errors
from paddock.distribution import install_command
from paddock.interpreter import archive, kit
from paddock.interpreter.archive import Archive, Source
from paddock.machine.threads import in_thread

log = structlog.get_logger(__name__)

_LOCK = Path(__file__).with_name("kit.lock")
_PIP = (
    "install",
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--no-compile",
    "--no-user",
    "--no-input",
    "--no-color",
    "--disable-pip-version-check",
    "--no-warn-script-location",
    "--progress-bar=off",
    "--retries=1",
)
_DOWNLOAD_TIMEOUT_S = 300.0
_RETRY_AFTER_FAILURE_S = 20.0
"""After a failure, calls within this time do not ask the index again."""
_ABI = re.compile(r"cpython-3(?P<minor>\d{1,2})-(?P<architecture>x86_64|aarch64)-linux-(?P<libc>gnu|musl)")
_GLIBC = re.compile(r"glibc 2\.(\d{1,3})")
_GLIBC_NEW, _GLIBC_OLD, _MUSL = "manylinux_2_28", "manylinux_2_17", "musllinux_1_2"
_OLDEST_GLIBC = 5
_NEWEST_MINOR = 20
_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|Max retries exceeded|"
    r"Connection (?:refused|reset|broken|aborted)|Network is unreachable|Temporary failure in name resolution|"
    r"Retrying \("
)


@dataclass(frozen=True, slots=True)
class TargetPython:
    """The Python for which packages are chosen. Only a few values are possible, because each means a download and the
    sandbox controls what its Python reports."""

    minor: int
    """12 for Python 3.12.4."""
    architecture: str
    system: str
    """The oldest supported C library, as in names of wheels."""

    @classmethod
    def of(cls, abi: str, libc: str) -> TargetPython | None:
        """From a Python's SOABI and C library ("glibc 2.36"). None if there are no packages for it."""
        known, glibc = _ABI.fullmatch(abi), _GLIBC.fullmatch(libc)
        if known is None or not 9 <= int(known["minor"]) <= _NEWEST_MINOR or (known["libc"] == "gnu") != bool(glibc):
            return None
        system = _MUSL if glibc is None else _GLIBC_NEW if int(glibc[1]) >= 28 else _GLIBC_OLD
        return cls(int(known["minor"]), known["architecture"], system)

    @property
    def version(self) -> str:
        """A full version number, because packages exclude the first releases of some versions."""
        return f"3.{self.minor}.99"

    def platforms(self) -> list[str]:
        """Platform tags of suitable wheels, in pip's form."""
        if self.system == _MUSL:
            names = [_MUSL, "musllinux_1_1"]
        else:
            newest = int(self.system.rpartition("_")[2])
            names = [f"manylinux_2_{minor}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
            names += ["manylinux2014", "manylinux2010", "manylinux1"]
        return [f"{name}_{self.architecture}" for name in names]

    def markers(self) -> dict[str, str]:
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.architecture,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": self.version,
            "python_version": f"3.{self.minor}",
            "sys_platform": "linux",
        }


class KitDownload:
    """``folder`` contains the archives that this server sends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._downloading = asyncio.Lock()
        self._failed: tuple[float, str] | None = None

    async def get(self, abi: str, libc: str) -> Archive:
        """The kit, downloaded unless it exists. Raises InterpreterMissing with the reason and the next step."""
        target = TargetPython.of(abi, libc)
        if target is None:
            raise errors.InterpreterMissing(_advice(abi, "there are no packages for a Python of this kind"))
        lock = locked(target)
        fingerprint = f"{target}\n{lock}"
        async with self._downloading:
            if found := archive.find(self._folder, "kit", fingerprint):
                return found
            if self._failed and time.monotonic() < self._failed[0]:
                raise errors.InterpreterMissing(_advice(abi, self._failed[1]))
            began = time.monotonic()
            log.info("downloading the kernels of run_code, once", python=abi, packages=lock.count("=="))
            with tempfile.TemporaryDirectory() as scratch:
                packages = Path(scratch, "packages")
                if reason := await self._download(target, lock, packages):
                    self._failed = (time.monotonic() + _RETRY_AFTER_FAILURE_S, reason)
                    raise errors.InterpreterMissing(_advice(abi, reason))
                made = await archive.make(self._folder, "kit", fingerprint, _files(packages))
            seconds, size = round(time.monotonic() - began, 1), made.path.stat().st_size
            log.info("the kernels of run_code are here", python=abi, seconds=seconds, bytes=size)
            return made

    async def _download(self, target: TargetPython, lock: str, packages: Path) -> str | None:
        """Returns the reason of a failure, None on success."""
        requirements = packages.with_name("requirements.txt")
        await in_thread(lambda: requirements.write_text(lock))
        platforms = [f"--platform={name}" for name in target.platforms()]
        options = [f"--python-version={target.version}", "--implementation=cp", *platforms, f"--target={packages}"]
        command = [sys.executable, "-m", "pip", *_PIP, *options, "-r", str(requirements)]
        pip = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(os.environ),
        )
        try:
            async with asyncio.timeout(_DOWNLOAD_TIMEOUT_S):
                said = (await pip.communicate())[0].decode(errors="replace")
        except TimeoutError:
            said = "ReadTimeout"
        finally:
            if pip.returncode is None:
                pip.kill()
                await asyncio.shield(pip.wait())
        if pip.returncode == 0:
            return None
        log.warning("the kernels of run_code could not be downloaded", pip=said[-2000:])
        return _reason(said)


def locked(target: TargetPython) -> str:
    """The lines of the lock file for this Python, without markers: pip would evaluate those for the server's Python."""
    from packaging.requirements import Requirement  # needed once for each Python, and slow to import

    kept = []
    for entry in re.split(r"^(?=[A-Za-z0-9])", _LOCK.read_text(), flags=re.MULTILINE):
        first, *hashes = entry.strip().split(" \\\n")
        if not hashes:
            continue
        requirement = Requirement(first)
        if requirement.marker is None or requirement.marker.evaluate(target.markers()):
            kept.append(" \\\n".join([f"{requirement.name}{requirement.specifier}", *hashes]))
    return "\n".join(kept) + "\n"


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The server's environment, with the index configured for uv if none is configured for pip."""
    environment = {name: value for name, value in ours.items() if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")}
    index = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL")
    if index:
        environment.setdefault("PIP_INDEX_URL", index)
    return environment | {"PIP_REQUIRE_VIRTUALENV": "0"}


def _files(packages: Path) -> Iterator[Source]:
    for path in sorted(packages.rglob("*")):
        place = path.relative_to(packages)
        if path.is_file() and kit.wanted(place):
            yield Source(path, place.as_posix())


def _reason(said: str) -> str:
    if "No module named pip" in said:
        return "the server's environment has no pip to download them with"
    if "HASHES" in said or "hash" in said.lower():
        return "what the package index has is not what Paddock was released with (a hash differs)"
    if _OFFLINE.search(said):
        return "the package index does not answer"
    return "the package index does not have them for this kind of Python"


def _advice(abi: str, reason: str) -> str:
    command = install_command("interpreter")
    return (
        f"Running code needs ipykernel, which the sandbox's Python ({abi[:60]}) does not have, and {reason}. Set "
        f"PIP_INDEX_URL for the server if the index is another one; without any index, run `{command}` where the "
        "server is, or `pip install ipykernel jupyter-client` in the sandbox or its template."
    )
