"""Tar files of Python code, with its bytecode: made once, kept in a folder of the server, named after what is in them.

Bytecode is sent along because the folders are read-only to whoever runs the code: without it, each start would
compile anew.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import secrets
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Archive:
    path: Path
    name: str
    """Tells what is in it: the same name, the same content."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and its place in the archive."""

    path: Path
    place: str


def find(folder: Path, kind: str, fingerprint: str) -> Archive | None:
    """What was made before."""
    name = _name(kind, fingerprint)
    path = folder / f"{name}.tar"
    return Archive(path, name) if path.exists() else None


def make(folder: Path, kind: str, fingerprint: str, sources: Iterable[Source]) -> Archive:
    """The archive of these sources, made now unless an earlier server has."""
    name = _name(kind, fingerprint)
    path = folder / f"{name}.tar"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            with tarfile.open(unfinished, "w") as tar, tempfile.TemporaryDirectory() as scratch:
                for source in sources:
                    _add(tar, source, Path(scratch))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return Archive(path, name)


def _name(kind: str, fingerprint: str) -> str:
    return f"{kind}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}"


def _add(tar: tarfile.TarFile, source: Source, scratch: Path) -> None:
    tar.add(source.path, source.place, recursive=False, filter=_anybodys)
    if source.path.suffix == ".py" and (compiled := _bytecode(source.path, scratch)):
        place = importlib.util.cache_from_source(source.place)
        tar.add(compiled, place, recursive=False, filter=_anybodys)


def _bytecode(path: Path, scratch: Path) -> Path | None:
    """It names the time of its source, which the archive keeps, so it is valid where it is unpacked."""
    there = Path(importlib.util.cache_from_source(os.fspath(path)))
    if there.exists() and there.stat().st_mtime >= path.stat().st_mtime:
        return there
    made = scratch / "compiled.pyc"
    try:
        py_compile.compile(os.fspath(path), os.fspath(made), doraise=True)
    except py_compile.PyCompileError:  # a file for another version of Python, or a template of one
        return None
    return made


def _anybodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    entry.mtime = int(entry.mtime)
    return entry
