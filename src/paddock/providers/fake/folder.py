"""The folder of one sandbox: what is remembered of it on disk, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddock import errors
from paddock.egress.policy import EgressPolicy
from paddock.providers.base import MachineInfo, MachineState, Resources, SandboxSpec
from paddock.providers.fake.descriptors import locked

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def is_safe_name(text: str) -> bool:
    """May be a part of a path."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Record:
    """What ``sandbox.json`` says."""

    sandbox_id: str
    state: MachineState
    reference: str
    created_at: float
    key: str
    owner_id: str
    user_id: str
    template_id: str
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    labels: Mapping[str, str] = field(default_factory=dict)
    egress: EgressPolicy = field(default_factory=EgressPolicy)

    @classmethod
    def new(cls, spec: SandboxSpec, created_at: float) -> Record:
        return cls(
            sandbox_id=spec.sandbox_id,
            state=MachineState.RUNNING,
            reference=f"fake:{spec.sandbox_id}",
            created_at=created_at,
            key=spec.key,
            owner_id=spec.owner_id,
            user_id=spec.user_id,
            template_id=spec.template_id,
            env=dict(spec.env),
            resources=spec.resources,
            labels=dict(spec.labels),
            egress=spec.egress,
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        raw = json.loads(text)
        raw |= {"state": MachineState(raw["state"]), "resources": Resources(**raw["resources"])}
        if "egress" in raw:
            raw["egress"] = EgressPolicy.from_json(raw["egress"])
        return cls(**raw)

    def to_json(self) -> str:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        limits = self.resources
        plain["resources"] = {name: getattr(limits, name) for name in limits.__dataclass_fields__}
        plain["egress"] = self.egress.to_json()
        return json.dumps(plain)

    def found(self) -> MachineInfo:
        return MachineInfo(self.sandbox_id, self.state, self.reference, self.created_at, dict(self.labels))


class Folder:
    """Where one sandbox lives: ``sandbox.json``, ``root/`` (its file system), ``keeper/`` and ``processes/``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.keeper = path / "keeper"
        self.processes = path / "processes"

    @property
    def sandbox_id(self) -> str:
        return self.path.name

    def read(self) -> Record | None:
        """None when there is no such sandbox; what cannot be read is unknown, which is never gone."""
        try:
            return Record.from_json((self.path / "sandbox.json").read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise errors.ProviderUnavailable(
                f"The record of sandbox {self.sandbox_id!r} cannot be read: {error}"
            ) from error

    def existing(self) -> Record:
        if (record := self.read()) is None:
            raise errors.SandboxNotFound.by_id(self.sandbox_id)
        return record

    def write(self, record: Record) -> None:
        temporary = self.path / f"sandbox.json.{secrets.token_hex(4)}"
        temporary.write_text(record.to_json())
        temporary.replace(self.path / "sandbox.json")

    def change(self, *, state: MachineState | None = None, egress: EgressPolicy | None = None) -> None:
        record = self.existing()
        self.write(replace(record, state=state or record.state, egress=egress or record.egress))

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Shared to start a command, alone to pause, resume or delete."""
        lock = self.path / "lock"
        with ExitStack() as held:
            try:
                fd = held.enter_context(locked(lock, shared=shared))
                deleted_meanwhile = lock.stat().st_ino != os.fstat(fd).st_ino
            except FileNotFoundError:
                raise errors.SandboxNotFound.by_id(self.sandbox_id) from None
            if deleted_meanwhile:
                raise errors.SandboxNotFound.by_id(self.sandbox_id)
            yield


def remove_tree(path: Path) -> None:
    """Whatever a sandbox may have left: unreadable directories, or thousands of them in each other."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--", path], check=True, capture_output=True)
