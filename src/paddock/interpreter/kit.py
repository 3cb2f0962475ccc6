"""The kit: ipykernel and jupyter-client with their dependencies, for sandboxes whose Python does not have them.

It contains compiled modules, so it fits only one combination of Python version, architecture and C library, named by
``abi``. Here it is built from the server's own environment, if that has the extra ``interpreter``; otherwise
:mod:`paddock.interpreter.kit_download` downloads it.
"""

from __future__ import annotations

import importlib.metadata
import re
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path, PurePath

from paddock.interpreter import archive
from paddock.interpreter.archive import Archive, Source
from paddock.machine.threads import in_thread

ROOTS = ("ipykernel", "jupyter-client")
LEFT_OUT = frozenset({"debugpy", "jedi", "parso", "tzdata"})
"""Debugger and completion are two thirds of the size and not needed here; tzdata is for Windows."""
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_TESTS = frozenset({"tests", "test"})
_NO_PACKAGES = frozenset({"bin", "etc", "share"})


def abi() -> str:
    return str(sysconfig.get_config_var("SOABI"))


async def make(folder: Path) -> Archive | None:
    """None if the extra ``interpreter`` is not installed in this environment."""
    found = await in_thread(_closure)
    if found is None:
        return None
    fingerprint = "\n".join([abi(), *sorted(f"{each.name}=={each.version}" for each in found)])
    return await archive.make(folder, "kit", fingerprint, (source for each in found for source in _files(each)))


def _closure() -> list[Distribution] | None:
    found: dict[str, Distribution] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if _normal(name) in found or _normal(name) in LEFT_OUT:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except PackageNotFoundError:
            if name in ROOTS:
                return None
            continue  # requirements of other platforms or Python versions are not installed here
        found[_normal(name)] = distribution
        waiting += [_NAME.findall(need)[0] for need in distribution.requires or () if "extra ==" not in need]
    return list(found.values())


def wanted(place: PurePath) -> bool:
    """Whether a sandbox needs this file of a package."""
    return not (_TESTS | {"__pycache__"}) & set(place.parts) and place.parts[0] not in _NO_PACKAGES


def _files(distribution: Distribution) -> Iterator[Source]:
    for file in distribution.files or ():
        if file.is_absolute() or ".." in file.parts or not wanted(file):
            continue
        path = Path(str(distribution.locate_file(file)))
        if path.is_file():
            yield Source(path, file.as_posix())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
