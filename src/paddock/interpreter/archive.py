"""Tar files of Python code with its bytecode, built once, stored in a directory of the server, and named by content.

Bytecode is included because the code is unpacked into directories that its user cannot write to: otherwise each start
would compile it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import py_compile
import secrets
import sys
import tarfile
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.machine.threads import in_thread

_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Archive:
    path: Path
    name: str
    """Derived from the content: equal names mean equal content."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and its path in the archive."""

    path: Path
    place: str


def find(folder: Path, kind: str, fingerprint: str) -> Archive | None:
    """The archive built earlier, if any."""
    name = _name(kind, fingerprint)
    path = folder / f"{name}.tar"
    return Archive(path, name) if path.exists() else None


async def make(folder: Path, kind: str, fingerprint: str, sources: Iterable[Source]) -> Archive:
    """The archive of these sources, built unless it exists.

    Built in another process: a thread that compiles thousands of files would block the event loop by the GIL.
    """
    if found := await in_thread(find, folder, kind, fingerprint):
        return found
    name = _name(kind, fingerprint)
    listed = await in_thread(lambda: json.dumps([[os.fspath(source.path), source.place] for source in sources]))
    maker = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", __name__, str(folder), name, stdin=PIPE, stdout=DEVNULL, stderr=PIPE
    )
    try:
        said = (await maker.communicate(listed.encode()))[1].decode(errors="replace")
    finally:
        if maker.returncode is None:
            maker.kill()
            await asyncio.shield(maker.wait())
    if maker.returncode != 0:
        raise errors.Unavailable(f"The files of the interpreter could not be packed: {said.strip()[-300:]}")
    return Archive(folder / f"{name}.tar", name)


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    os.nice(_NICENESS)
    sources = [Source(Path(path), place) for path, place in json.load(sys.stdin)]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = folder / f"{name}.{secrets.token_hex(4)}"
    try:
        with tarfile.open(unfinished, "w") as tar, tempfile.TemporaryDirectory() as scratch:
            for source in sources:
                _add(tar, source, Path(scratch))
        unfinished.replace(folder / f"{name}.tar")
    except OSError as error:
        sys.exit(str(error))
    finally:
        unfinished.unlink(missing_ok=True)


def _name(kind: str, fingerprint: str) -> str:
    return f"{kind}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}"


def _add(tar: tarfile.TarFile, source: Source, scratch: Path) -> None:
    tar.add(source.path, source.place, recursive=False, filter=_without_owner)
    if source.path.suffix == ".py" and (compiled := _bytecode(source.path, scratch)):
        place = importlib.util.cache_from_source(source.place)
        tar.add(compiled, place, recursive=False, filter=_without_owner)


def _bytecode(path: Path, scratch: Path) -> Path | None:
    """Bytecode contains the time of its source, which the archive preserves, so it is valid where it is unpacked."""
    there = Path(importlib.util.cache_from_source(os.fspath(path)))
    if there.exists() and there.stat().st_mtime >= path.stat().st_mtime:
        return there
    made = scratch / "compiled.pyc"
    try:
        py_compile.compile(os.fspath(path), os.fspath(made), doraise=True)
    except py_compile.PyCompileError:  # a file for another Python version, or a template of one
        return None
    return made


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    entry.mtime = int(entry.mtime)
    return entry


if __name__ == "__main__":
    main()
