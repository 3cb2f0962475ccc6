"""The warm machines known to this server, by shape."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import Resources, SandboxSpec, Shape
from paddock.providers.common.record import SandboxRecord

Living = TypeVar("Living")
"""The provider's handle of a running machine."""


@dataclass(frozen=True, slots=True, eq=False)
class _WarmMachine(Generic[Living]):
    folder: Path
    record: SandboxRecord
    handle: Living | None

    @property
    def shape(self) -> Shape:
        return Shape(self.record.spec.template_id, self.record.spec.resources.disk_mb)


class WarmMachines(Generic[Living]):
    """A list only; claiming is decided by the rename in :class:`SandboxDirs`, on whichever server does it first."""

    def __init__(self) -> None:
        self._ready: list[_WarmMachine[Living]] = []

    def add(self, folder: Path, record: SandboxRecord, handle: Living | None = None) -> None:
        self._ready.append(_WarmMachine(folder, record, handle))

    def take(self, shape: Shape) -> tuple[Path, SandboxRecord, Living | None] | None:
        for one in self._ready:
            if one.shape == shape:
                self._ready.remove(one)
                return one.folder, one.record, one.handle
        return None

    def machines(self) -> list[Living]:
        return [one.handle for one in self._ready if one.handle is not None]

    def has(self, handle: Living) -> bool:
        return any(one.handle is handle for one in self._ready)

    def counts(self) -> Mapping[Shape, int]:
        return Counter(one.shape for one in self._ready)

    def lost(self, handle: Living) -> None:
        """The machine ended by itself and must not be handed out."""
        self._ready = [one for one in self._ready if one.handle is not handle]

    def clear(self) -> list[Living]:
        ready, self._ready = self._ready, []
        return [one.handle for one in ready if one.handle is not None]


def usual(disk_mb: int) -> Resources:
    """Resources of a warm machine; other limits are applied when it is handed out."""
    return Resources(disk_mb=disk_mb)


def anonymous(shape: Shape) -> SandboxSpec:
    """The spec of a machine that is started before a sandbox needs it."""
    return SandboxSpec(
        sandbox_id=f"warm_{secrets.token_hex(8)}",
        key="",
        owner_id="",
        user_id="",
        template_id=shape.template_id,
        resources=usual(shape.disk_mb),
        egress=EgressPolicy(EgressMode.NONE),
    )
