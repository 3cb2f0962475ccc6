"""Compiles the native programs into ``src/paddock/bin/<architecture>/`` for a wheel or an editable install.

The compiler is ``PADDOCK_CC``, else the system's if it can link statically, else the ``ziglang`` wheel, which also
builds for the other architecture. Nothing is compiled again while sources, flags and compiler stay the same.
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
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = {"paddock-agent": "src", "paddock-launch": "launch", "paddock-probe": "probe"}
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
        return [] if _named_compiler() or _system_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        editable = version == "editable"
        root = Path(self.root)
        compiler = find_compiler(both=not editable)
        for architecture in compiler.architectures:
            build(root, compiler, architecture, self.metadata.version)
        if editable:
            return
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(compiler.architectures)
        for architecture in compiler.architectures:
            for program in PROGRAMS:
                inside = f"paddock/bin/{architecture}/{program}"
                build_data["force_include"][str(root / "src" / inside)] = inside


def get_build_hook() -> type[Hook]:
    return Hook


def native_architecture() -> str:
    machine = platform.machine().lower()
    architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.platform != "linux" or architecture not in ARCHITECTURES:
        raise BuildError(
            f"Paddock's agent runs on Linux, on {' and '.join(ARCHITECTURES)}; this is {sys.platform} on {machine}."
        )
    return architecture


def wheel_tag(architectures: tuple[str, ...]) -> str:
    return "py3-none-" + ".".join(f"{kind}_{architecture}" for kind in PLATFORMS for architecture in architectures)


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


def build(root: Path, compiler: Compiler, architecture: str, version: str) -> None:
    target = root / "src/paddock/bin" / architecture
    target.mkdir(parents=True, exist_ok=True)
    for program, folder in PROGRAMS.items():
        _build_program(root / "agent", folder, target / program, compiler.for_architecture(architecture), version)


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
