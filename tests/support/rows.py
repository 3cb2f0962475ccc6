"""Rows to test with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paddock.ids import new_sandbox_id, new_sandbox_key
from paddock.models import State, TimeoutAction
from paddock.store.records import SandboxRow

EPOCH = 1_800_000_000.0


def a_sandbox(user_id: str = "alice", **changes: Any) -> SandboxRow:
    plain = SandboxRow(
        sandbox_id=new_sandbox_id(user_id),
        key=new_sandbox_key(),
        owner_id="owner",
        user_id=user_id,
        provider="local",
        reference="ref",
        template_id="host",
        state=State.RUNNING,
        timeout=3600,
        on_timeout=TimeoutAction.PAUSE,
        cpu=1.0,
        memory_mb=512,
        disk_mb=1024,
        pids=512,
        created_at=EPOCH,
        started_at=EPOCH,
        running_since=EPOCH,
        last_activity_at=EPOCH,
        state_changed_at=EPOCH,
    )
    return replace(plain, **changes)
