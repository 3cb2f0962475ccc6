"""Decides which file is in which of the two distributions, and compiles the native programs of the server.

``paddock-client`` holds the files of ``CLIENT`` and is pure Python. ``paddock-sandbox`` holds all others and requires
``paddock-client`` of the same version. No file is in both, so pip can install, upgrade and remove each of them.

A server wheel is for one architecture: this machine's, or the one that ``PADDOCK_ARCHITECTURE`` names. An editable
install has its programs in ``src/paddock/bin/<architecture>/``. The compiler is ``PADDOCK_CC``, else the system's if it
can link statically, else the ``ziglang`` wheel, which also builds for the other architecture. Nothing is compiled again
while sources, flags and compiler stay the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CLIENT = (
    "__init__.py",
    "__main__.py",
    "addons/__init__.py",
    "addons/progress.py",
    "cli",
    "client",
    "deepagents",
    "distribution.py",
    "errors.py",
    "exit_deletion.py",
    "home.py",
    "ids.py",
    "langchain",
    "models",
    "paths.py",
    "py.typed",
    "redaction.py",
    "session",
)
"""Files and folders of ``src/paddock``. Nothing of the server is imported with them. Commands that work on a server of
the same machine import it when they are called; where it is missing they say what to install (``cli/session.py``)."""

PROGRAMS = {"paddock-agent": "src", "paddock-launch": "launch", "paddock-probe": "probe"}
AGENT = "paddock-agent"
"""The only program that also runs on other machines than the server's: a Docker engine elsewhere, a vendor's cloud."""
ARCHITECTURES = ("x86_64", "aarch64")
PLATFORMS = ("manylinux_2_17", "musllinux_1_1")
"""The programs are static: they run wherever the kernel does, whatever its libc."""

NO_COMPILER = (
    "Paddock's agent is written in C, and there is nothing here to compile it with. Install a C compiler with a static "
    "libc (Debian and Ubuntu: apt-get install gcc libc6-dev; Alpine: apk add gcc musl-dev; Fedora: dnf install gcc "
    "glibc-static), or `pip install ziglang`, or name a compiler in PADDOCK_CC."
)


class BuildError(Exception):
    """Why the programs cannot be built here, and what to do about it."""


class Compiler(NamedTuple):
    command: tuple[str, ...]
    architectures: tuple[str, ...]

    def for_architecture(self, architecture: str) -> list[str]:
        return [part.replace("{arch}", architecture) for part in self.command]


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if self._of_client or _named_compiler() or _system_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        editable = version == "editable"
        if self._of_client:
            if self.target_name == "sdist":
                raise BuildError("The sources of paddock-client are in the source distribution of paddock-sandbox.")
            if not editable:
                build_data["force_include"] |= files(Path(self.root).parent, client=True)
            return
        root = Path(self.root)
        build_data["dependencies"].append(f"paddock-client[cli]=={self.metadata.version}")
        if editable:
            compiler = find_compiler(both=False)
            build(root, compiler, compiler.architectures[0], self.metadata.version)
            return
        build_data["force_include"] |= files(root, client=False) | self._programs(root)
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(wanted_architecture())

    @property
    def _of_client(self) -> bool:
        return bool(self.metadata.name == "paddock-client")

    def _programs(self, root: Path) -> dict[str, str]:
        """All for the wheel's architecture, and the agent for the other one where the compiler can build it. They are
        compiled beside those of an editable install, whose compiler may be another."""
        wanted, folder = wanted_architecture(), root / "build" / "bin"
        compiler = find_compiler(both=True)
        if wanted not in compiler.architectures:
            raise BuildError(f"Programs for {wanted} are compiled by zig here: `pip install ziglang`.")
        found = {}
        for architecture in compiler.architectures:
            programs = PROGRAMS if architecture == wanted else [AGENT]
            build(root, compiler, architecture, self.metadata.version, folder, programs)
            found |= {
                str(folder / architecture / program): f"paddock/bin/{architecture}/{program}" for program in programs
            }
        return found


def get_build_hook() -> type[Hook]:
    return Hook


def files(root: Path, *, client: bool) -> dict[str, str]:
    """The Python files, and what lies among them, of one of the two distributions: each with its place in the wheel."""
    package = root / "src" / "paddock"
    found = {}
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        of_client = parts[0] in CLIENT or "/".join(parts) in CLIENT
        if path.is_file() and not hidden and parts[0] != "bin" and of_client == client:
            found[str(path)] = "/".join(("paddock", *parts))
    return found


def wanted_architecture() -> str:
    named = os.environ.get("PADDOCK_ARCHITECTURE")
    if named and named not in ARCHITECTURES:
        raise BuildError(f"PADDOCK_ARCHITECTURE is {named!r}, and has to be one of {', '.join(ARCHITECTURES)}.")
    return named or native_architecture()


def native_architecture() -> str:
    machine = platform.machine().lower()
    architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.platform != "linux" or architecture not in ARCHITECTURES:
        raise BuildError(
            f"Paddock's server runs on Linux, on {' and '.join(ARCHITECTURES)}; this is {sys.platform} on {machine}. "
            "Install paddock-client here, and use a server elsewhere."
        )
    return architecture


def wheel_tag(architecture: str) -> str:
    return "py3-none-" + ".".join(f"{kind}_{architecture}" for kind in PLATFORMS)


def find_compiler(*, both: bool) -> Compiler:
    """For this machine; or for both architectures, where there is something that can."""
    native = native_architecture()
    if named := _named_compiler():
        return Compiler(named, (native,))
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "{arch}-linux-musl")
    if importlib.util.find_spec("ziglang"):
        if both:
            return Compiler(zig, ARCHITECTURES)
        return Compiler(_system_compiler() or zig, (native,))
    if system := _system_compiler():
        return Compiler(system, (native,))
    raise BuildError(NO_COMPILER)


def _named_compiler() -> tuple[str, ...] | None:
    named = os.environ.get("PADDOCK_CC")
    return tuple(shlex.split(named)) if named else None


def _system_compiler() -> tuple[str, ...] | None:
    """One that can link statically: on some systems that takes one package more."""
    for name in ("cc", "gcc", "clang"):
        if (path := shutil.which(name)) and _links_statically(path):
            return (path,)
    return None


def _links_statically(compiler: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text('#include <stdio.h>\nint main(void) { return puts("") < 0; }\n')
        command = [compiler, "-static", str(source), "-o", str(Path(folder, "probe"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def build(
    root: Path,
    compiler: Compiler,
    architecture: str,
    version: str,
    folder: Path | None = None,
    programs: Iterable[str] = PROGRAMS,
) -> None:
    """Into ``folder/<architecture>``; that of an editable install where no folder is named."""
    target = (folder or root / "src/paddock/bin") / architecture
    target.mkdir(parents=True, exist_ok=True)
    command = compiler.for_architecture(architecture)
    for program in programs:
        _build_program(root / "agent", PROGRAMS[program], target / program, command, version)


def _build_program(agent: Path, folder: str, target: Path, compiler: list[str], version: str) -> None:
    sources = sorted((agent / folder).glob("*.c"))
    if not sources:
        raise BuildError(f"{agent / folder} holds no C files: these sources of Paddock are not whole.")
    flags = shlex.split((agent / "flags").read_text())
    command = [*compiler, *flags, f'-DPADDOCK_BUILD="{version}"', *map(str, sources)]
    digest = _digest([*sources, *sorted((agent / folder).glob("*.h"))], [*compiler, *flags, version])
    stamp = target.with_name(f".{target.name}.sha256")
    if target.exists() and stamp.exists() and stamp.read_text() == digest:
        return
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", str(fresh)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{target.name} could not be compiled by {shlex.join(compiler)}:\n{done.stderr.strip()}")
    fresh.chmod(0o755)
    fresh.replace(target)  # a program that runs is left alone
    stamp.write_text(digest)


def _digest(files: list[Path], words: list[str]) -> str:
    found = hashlib.sha256()
    for part in [*(file.read_bytes() for file in files), *(word.encode() for word in words)]:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
