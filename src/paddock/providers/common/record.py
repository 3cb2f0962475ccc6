"""The record of one sandbox on disk: enough to find its processes again, or to restart it from its disk."""

from __future__ import annotations

import functools
import json
import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from paddock import errors
from paddock.egress.policy import EgressPolicy
from paddock.providers.base import IsolationLevel, MachineInfo, MachineState, Mount, Resources, SandboxSpec
from paddock.providers.common.cgroups import CgroupHandle

RECORD = "record.json"
SOCKET = "agent.sock"
_VERSION = 1
_RESOURCES = [field.name for field in fields(Resources)]


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """The agent's process. The pid alone does not identify it, because the kernel reuses pids."""

    pid: int
    start_time: int
    boot_id: str
    uid_slot: int | None
    group: CgroupHandle | None
    stopped: bool = False
    """Paused by SIGSTOP, where there is no freezer."""

    def alive(self) -> bool:
        return self.boot_id == boot_id() and start_time(self.pid) == self.start_time

    def send_kill(self) -> int | None:
        """Kill it; returns a pidfd to wait for its end, which the caller closes. None if it has ended already."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        try:
            if start_time(self.pid) == self.start_time:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return pidfd
        except ProcessLookupError:
            return pidfd  # it ended just now
        except BaseException:
            os.close(pidfd)
            raise
        os.close(pidfd)
        return None


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    spec: SandboxSpec
    created_at: float
    reference: str
    """A name of its own, which stays when a warm machine is assigned a sandbox id."""
    running: RunningProcess | None = None

    def found(self, state: MachineState) -> MachineInfo:
        return MachineInfo(self.spec.sandbox_id, state, self.reference, self.created_at, self.spec.labels)

    def process_state(self) -> MachineState:
        """Of one whose agent is a process of this host. Read from the process and the freezer, never from the last
        write: a crash may have come in between."""
        running = self.running
        if running is None or running.stopped or not running.alive():
            return MachineState.PAUSED
        frozen = running.group is not None and running.group.frozen()
        return MachineState.PAUSED if frozen else MachineState.RUNNING

    def save(self, folder: Path) -> None:
        # Written by hand: this is part of every create, and higher-level functions cost more than the write itself.
        draft = f"{folder}/.{RECORD}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            text = json.dumps(self._to_json()).encode()
            while text:
                text = text[os.write(descriptor, text) :]
        except OSError:  # the disk is full: leave no partial file
            os.unlink(draft)  # noqa: PTH108
            raise
        finally:
            os.close(descriptor)
        os.rename(draft, f"{folder}/{RECORD}")  # noqa: PTH104

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """None if there is no record. A record that cannot be read raises instead."""
        try:
            return cls._from_json(json.loads((folder / RECORD).read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, errors.Invalid) as error:
            raise errors.ProviderUnavailable(
                f"The record of sandbox {folder.name!r} cannot be read: {error}"
            ) from error

    @classmethod
    def load_or(cls, folder: Path, known: Self | None) -> Self | None:
        """``known``: what was last known of it, for a record that can no longer be read."""
        try:
            return cls.load(folder)
        except errors.ProviderUnavailable:
            if known is None:
                raise
            return known

    def _to_json(self) -> dict[str, Any]:
        spec = self.spec
        running = self.running
        return {
            "version": _VERSION,
            "sandbox_id": spec.sandbox_id,
            "key": spec.key,
            "owner_id": spec.owner_id,
            "user_id": spec.user_id,
            "template_id": spec.template_id,
            "env": dict(spec.env),
            "resources": {name: getattr(spec.resources, name) for name in _RESOURCES},
            "labels": dict(spec.labels),
            "egress": spec.egress.to_json(),
            "isolation": spec.isolation.value if spec.isolation else None,
            "mounts": [asdict(mount) for mount in spec.mounts],
            "created_at": self.created_at,
            "reference": self.reference,
            "running": None
            if running is None
            else {
                "pid": running.pid,
                "start_time": running.start_time,
                "boot_id": running.boot_id,
                "uid_slot": running.uid_slot,
                "group": running.group.to_json() if running.group else None,
                "stopped": running.stopped,
            },
        }

    @classmethod
    def _from_json(cls, given: Mapping[str, Any]) -> Self:
        if given["version"] != _VERSION:
            raise ValueError(f"it was written by another version ({given['version']})")
        isolation = given["isolation"]
        spec = SandboxSpec(
            sandbox_id=given["sandbox_id"],
            key=given["key"],
            owner_id=given["owner_id"],
            user_id=given["user_id"],
            template_id=given["template_id"],
            env=given["env"],
            resources=Resources(**given["resources"]),
            labels=given["labels"],
            egress=EgressPolicy.from_json(given["egress"]),
            isolation=IsolationLevel(isolation) if isolation else None,
            mounts=tuple(Mount(**mount) for mount in given["mounts"]),
        )
        running = given["running"]
        if running is not None:
            group = CgroupHandle.from_json(running["group"]) if running["group"] else None
            running = RunningProcess(**{**running, "group": group})
        return cls(spec, given["created_at"], given["reference"], running)

    def with_running(self, running: RunningProcess | None) -> SandboxRecord:
        return replace(self, running=running)

    def with_spec(self, **changes: Any) -> SandboxRecord:
        return replace(self, spec=replace(self.spec, **changes))


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """In clock ticks since boot; None if there is no such process, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return None if fields[0] in "ZX" else int(fields[19])
