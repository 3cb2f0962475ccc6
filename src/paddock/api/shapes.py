"""Converts data of the store and the machine to the wire models."""

from __future__ import annotations

import base64
from dataclasses import asdict, fields
from typing import Any

from paddock import models
from paddock.accounts.quotas import Quota
from paddock.clock import iso
from paddock.egress.records import EgressReport
from paddock.lifecycle.confinement import SandboxIsolation
from paddock.lifecycle.controller import SandboxView
from paddock.machine.base import FileInfo, MachineStats, OutputChunk, ProcessInfo
from paddock.runtime.output import OutputSlice
from paddock.server.context import ServerContext
from paddock.store import records

_SAME = [each.name for each in fields(records.SandboxRow) if each.name in models.SandboxInfo.model_fields]
"""What a sandbox's row and the answer about it call by the same name."""


def describe(seen: SandboxView, context: ServerContext) -> models.SandboxInfo:
    return models.SandboxInfo(**_sandbox(seen.sandbox, seen.expires, context), **_tokens(seen, context))


def sandbox_answer(seen: SandboxView, context: ServerContext, message: str = "") -> models.SandboxAnswer:
    told = _sandbox(seen.sandbox, seen.expires, context)
    return models.SandboxAnswer(message=message, **told, **_tokens(seen, context))


def _tokens(seen: SandboxView, context: ServerContext) -> dict[str, Any]:
    return {"mcp_token": context.tokens.mcp(seen.sandbox.key)}


def created_answer(
    seen: SandboxView, context: ServerContext, command: models.CommandResult | None = None
) -> models.CreatedSandbox:
    told = _sandbox(seen.sandbox, seen.expires, context)
    return models.CreatedSandbox(message="The sandbox is running.", command=command, **told, **_tokens(seen, context))


def sandbox_page(page: records.Page, context: ServerContext) -> models.SandboxPage:
    return models.SandboxPage(
        sandboxes=[
            models.SandboxInfo(**_sandbox(sandbox, page.expires.get(sandbox.sandbox_id), context))
            for sandbox in page.sandboxes
        ],
        next_cursor=page.next_cursor,
    )


def _sandbox(sandbox: records.SandboxRow, expires: records.Deadline | None, context: ServerContext) -> dict[str, Any]:
    return {
        **{name: getattr(sandbox, name) for name in _SAME},
        "status": sandbox.state,
        "resources": models.ResourceInfo(
            cpu=sandbox.cpu, memory_mb=sandbox.memory_mb, disk_mb=sandbox.disk_mb, pids=sandbox.pids
        ),
        "egress": models.Egress(sandbox.egress["mode"]),
        "mounts": [models.MountInfo(**mount) for mount in sandbox.mounts],
        "metadata": dict(sandbox.metadata),
        "created_at": iso(sandbox.created_at),
        "started_at": _maybe_iso(sandbox.started_at),
        "last_activity_at": iso(sandbox.last_activity_at),
        "expires_at": None if expires is None else iso(expires.due_at),
        "expires_action": None if expires is None else expires.action,
        "mcp_url": context.settings.program_url(sandbox.key, context.settings.mcp_port, "/mcp/"),
        "vscode_url": context.port_links.exposed_url(sandbox, context.settings.vscode_port),
    }


def process_answer(info: ProcessInfo) -> models.ProcessAnswer:
    return models.ProcessAnswer(
        process_id=info.process_id,
        status=models.CommandStatus(info.status.value),
        exit_code=info.exit_code,
        pid=info.pid,
        label=info.label,
        started_at=iso(info.started_at),
        ended_at=_maybe_iso(info.ended_at),
        stdout_size=info.stdout_size,
        stderr_size=info.stderr_size,
        terminal=info.terminal,
    )


def output_answer(output: OutputSlice) -> models.ProcessOutput:
    stdout, stderr, info = output.stdout, output.stderr, output.info
    return models.ProcessOutput(
        process_id=info.process_id,
        status=models.CommandStatus(info.status.value),
        exit_code=info.exit_code,
        stdout=stdout.data.decode(errors="replace"),
        stderr=stderr.data.decode(errors="replace"),
        stdout_base64=_base64_if_needed(stdout.data),
        stderr_base64=_base64_if_needed(stderr.data),
        stdout_start=stdout.offset,
        stderr_start=stderr.offset,
        stdout_skipped=stdout.skipped,
        stderr_skipped=stderr.skipped,
        stdout_offset=stdout.end,
        stderr_offset=stderr.end,
        eof=output.complete,
    )


def chunk_answer(chunk: OutputChunk) -> dict[str, Any]:
    """For an event: text, and base64 in addition only if the bytes are not UTF-8."""
    answer: dict[str, Any] = {
        "stream": chunk.stream.value,
        "offset": chunk.offset,
        "data": chunk.data.decode(errors="replace"),
    }
    if chunk.skipped:
        answer["skipped"] = chunk.skipped
    encoded = _base64_if_needed(chunk.data)
    return answer if encoded is None else {**answer, "data_base64": encoded}


def file_answer(info: FileInfo) -> models.FileAnswer:
    return models.FileAnswer(
        path=info.path,
        name=info.name,
        type=info.type.value,
        size=info.size,
        mode=f"{info.mode:04o}",
        owner=info.owner,
        group=info.group,
        modified_at=iso(info.modified_at),
        symlink_target=info.symlink_target,
    )


def event_answer(event: records.EventRow) -> models.EventAnswer:
    return models.EventAnswer(seq=event.seq, type=event.type, at=iso(event.at), data=dict(event.data))


def usage_answer(total: records.UsageRow, rows: list[records.UsageRow]) -> models.UsageAnswer:
    return models.UsageAnswer(total=_usage(total), rows=[_usage(row) for row in rows])


def _usage(usage: records.UsageRow) -> models.UsageRow:
    return models.UsageRow(
        user_id=usage.user_id,
        sandbox_id=usage.sandbox_id,
        day=usage.day,
        seconds=round(usage.seconds, 3),
        commands=usage.commands,
        bytes_in=usage.bytes_in,
        bytes_out=usage.bytes_out,
    )


def metrics_answer(stats: MachineStats) -> models.MetricsAnswer:
    return models.MetricsAnswer(
        at=iso(stats.at),
        cpu_count=stats.cpu_count,
        cpu_seconds=stats.cpu_seconds,
        memory_used=stats.memory_used,
        memory_total=stats.memory_total,
        disk_used=stats.disk_used,
        disk_total=stats.disk_total,
        process_count=stats.process_count,
    )


def isolation_answer(sandbox_id: str, isolated: SandboxIsolation) -> models.IsolationAnswer:
    return models.IsolationAnswer(
        sandbox_id=sandbox_id,
        level=models.Isolation(isolated.report.level.value),
        requested=isolated.requested,
        layers=[
            models.LayerInfo(name=layer.name, active=layer.active, detail=layer.detail)
            for layer in isolated.report.layers
        ],
    )


def egress_answer(sandbox_id: str, report: EgressReport) -> models.EgressAnswer:
    policy = report.policy
    return models.EgressAnswer(
        sandbox_id=sandbox_id,
        mode=models.Egress(policy.mode.value),
        allow=list(policy.allow),
        deny=list(policy.deny),
        private=list(policy.private),
        totals=models.EgressTotals(**asdict(report.totals)),
        latest=[models.EgressConnection(**{**asdict(each), "at": iso(each.at)}) for each in report.latest],
    )


def key_fields(key: records.ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "user_id": key.user_id,
        "prefix": key.prefix,
        "created_at": iso(key.created_at),
        "last_used_at": _maybe_iso(key.last_used_at),
    }


def user_answer(user: records.UserRow, quota: Quota) -> models.UserAnswer:
    return models.UserAnswer(
        user_id=user.user_id,
        role=user.role,
        disabled=user.disabled,
        quota=models.QuotaAnswer(**asdict(quota)),
        created_at=iso(user.created_at),
    )


def _maybe_iso(epoch: float | None) -> str | None:
    return None if epoch is None else iso(epoch)


def _base64_if_needed(data: bytes) -> str | None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
    return None
