"""The kit: ipykernel and jupyter-client with what they need, for sandboxes whose Python has them not.

It holds compiled modules, so it fits a Python of the same version, architecture and C library only; the name of that
combination is its ``abi``. Here it is made of the server's own environment, where that has the extra ``interpreter``;
else :mod:`paddock.interpreter.kit_download` gets it.
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
"""A debugger and completions, two thirds of the size, which nobody asks a program for; time zones are for Windows."""
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_TESTS = frozenset({"tests", "test"})
_NO_PACKAGES = frozenset({"bin", "etc", "share"})


def abi() -> str:
    return str(sysconfig.get_config_var("SOABI"))


async def make(folder: Path) -> Archive | None:
    """None where this environment does not have it: the extra ``interpreter`` is not installed."""
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
            continue  # what is for another system, or another version of Python, is not installed here
        found[_normal(name)] = distribution
        waiting += [_NAME.findall(need)[0] for need in distribution.requires or () if "extra ==" not in need]
    return list(found.values())


def wanted(place: PurePath) -> bool:
    """Whether a file of a package is of use in a sandbox."""
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
