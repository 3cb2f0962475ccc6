"""Metadata stored at the vendor beside each machine, by which every server finds it and knows its sandbox."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from paddock import errors
from paddock.providers.base import MachineInfo, Resources, SandboxSpec
from paddock.providers.vendor.base import VendorMachine

INSTALLATION = "paddock-installation"
SANDBOX = "paddock-sandbox"
_KEPT = "paddock-kept"
_MAX_BYTES = 12 * 1024
"""Maximum size as stored. Vendors document no limit; the known ones accept this much."""
_MAX_UNPACKED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MachineMetadata:
    """Data of one sandbox that the vendor's machine does not report."""

    sandbox_id: str
    env: Mapping[str, str]
    labels: Mapping[str, str]
    resources: Resources

    @classmethod
    def of(cls, spec: SandboxSpec) -> Self:
        """Equal for equal specs at any time: a repeated create must be the same request."""
        return cls(spec.sandbox_id, spec.env, spec.labels, spec.resources)

    @classmethod
    def read(cls, machine: VendorMachine) -> Self | None:
        """None if the format is not Paddock's: the machine must not be touched."""
        try:
            kept = _unpack(machine.metadata[_KEPT])
            return cls(
                sandbox_id=machine.metadata[SANDBOX],
                env=_texts(kept["env"]),
                labels=_texts(kept["labels"]),
                resources=Resources(**kept["resources"]),
            )
        except (KeyError, ValueError, TypeError, AttributeError, zlib.error):
            return None

    def metadata(self, installation: str) -> dict[str, str]:
        resources = self.resources
        packed = _pack(
            {
                "env": dict(self.env),
                "labels": dict(self.labels),
                "resources": {name: getattr(resources, name) for name in ("cpu", "memory_mb", "disk_mb", "pids")},
            }
        )
        if len(packed) > _MAX_BYTES:
            raise errors.Invalid(
                "The sandbox's variables and metadata together are too large to be kept at the provider "
                f"({len(packed)} bytes of {_MAX_BYTES}). Put the larger ones into a file of the sandbox."
            )
        return {INSTALLATION: installation, SANDBOX: self.sandbox_id, _KEPT: packed}

    def found(self, machine: VendorMachine) -> MachineInfo:
        return MachineInfo(self.sandbox_id, machine.state, machine.reference, machine.started_at, self.labels)


def _pack(kept: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(kept, separators=(",", ":"), sort_keys=True).encode(), 9)).decode()


def _unpack(text: str) -> dict[str, Any]:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_UNPACKED_BYTES)
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("not what we keep")
    return found


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in given.items()}
