"""System call numbers by name, for the supported architectures."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType

from paddock.errors import Unsupported


class Architecture(StrEnum):
    """An architecture, named as by ``uname -m``."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"

    @classmethod
    def named(cls, name: str) -> Architecture:
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(cls)
            raise Unsupported(
                f"There is no system-call filter for the architecture {name!r}, only for {known}."
            ) from None

    @classmethod
    def native(cls) -> Architecture:
        return cls.named(platform.machine())


@cache
def numbers(architecture: Architecture) -> Mapping[str, int]:
    """Name to number of every system call of this architecture."""
    column = 1 + list(Architecture).index(architecture)
    rows = [line.split() for line in _lines() if not line.startswith("#")]
    return MappingProxyType({row[0]: int(row[column]) for row in rows if row[column] != "-"})


@cache
def known_names() -> frozenset[str]:
    """Every system call that any of the architectures has."""
    return frozenset(name for architecture in Architecture for name in numbers(architecture))


def _lines() -> list[str]:
    return resources.files(__package__).joinpath("syscalls.txt").read_text("utf-8").splitlines()
