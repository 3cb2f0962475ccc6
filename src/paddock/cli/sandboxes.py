"""Commands to create, list, inspect, pause, resume and delete sandboxes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import create_options, output
from paddock.cli.arguments import Action, SandboxId, SandboxIds, Status
from paddock.cli.session import CliSession, command
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.client import Sandbox
    from paddock.models import MountInfo

PAGE = 50


@command
def create(
    session: CliSession,
    new: create_options.CreateOptions,
    timeout: Annotated[int | None, typer.Option(metavar="SECONDS", help="Idle seconds before it is paused.")] = None,
    on_timeout: create_options.OnTimeout = None,
) -> None:
    """Create a sandbox. In a pipe, prints only its id."""
    box = session.client.create_sandbox(**new.request(timeout=timeout, on_timeout=on_timeout))
    session.answer(box, lambda: _show_new(box))


@command
def list_(
    session: CliSession,
    user_id: Annotated[str | None, typer.Option(help="Only sandboxes of this user.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only sandboxes in this state.")] = None,
    everything: Annotated[bool, typer.Option("--all", help=f"List all, not only the first {PAGE}.")] = False,
) -> None:
    """List sandboxes."""
    found = session.client.iter_sandboxes(user_id, status, limit=PAGE + 1)
    boxes = list(found) if everything else list(islice(found, PAGE + 1))
    more = not everything and len(boxes) > PAGE
    boxes = boxes if everything else boxes[:PAGE]

    def show() -> None:
        columns = ("ID", "STATUS", "USER", "TEMPLATE", "PROVIDER", "CREATED", "NEXT")
        output.print_table(columns, map(_row, boxes), empty="No sandboxes. Make one with `paddock create`.")
        if more:
            output.note(f"These are the first {PAGE}; `paddock list --all` shows the rest.")

    session.answer({"sandboxes": boxes, "more": more}, show)


@command
def status(session: CliSession, sandbox_id: SandboxId) -> None:
    """Show one sandbox."""
    box = session.client.get_status(sandbox_id)
    session.answer(box, lambda: _show(box))


@command
def timeout(
    session: CliSession,
    sandbox_id: SandboxId,
    seconds: Annotated[int, typer.Argument(min=1, help="Idle seconds from now.")],
    action: Annotated[Action | None, typer.Option(help="Action at the timeout.")] = None,
) -> None:
    """Set when an idle sandbox is paused or deleted."""
    box = session.client.schedule_timeout(sandbox_id, seconds, action)
    session.answer(box, lambda: output.print_text(f"{box.sandbox_id}: {_next(box) or 'no deadline'}"))


@command
def pause(session: CliSession, sandbox_ids: SandboxIds) -> None:
    """Pause sandboxes. Files and, if the provider can, processes are kept."""
    _each(session, sandbox_ids, session.client.pause_sandbox, "paused")


@command
def resume(session: CliSession, sandbox_ids: SandboxIds) -> None:
    """Resume paused sandboxes."""
    _each(session, sandbox_ids, session.client.resume_sandbox, "running")


@command
def kill(session: CliSession, sandbox_ids: SandboxIds) -> None:
    """Delete sandboxes and everything in them, now."""
    _each(session, sandbox_ids, session.client.delete_sandbox, "deleted")


def _each(session: CliSession, sandbox_ids: Sequence[str], act: Callable[[str], Any], done: str) -> None:
    """Try all of them; a failure of one does not stop the others."""
    results: list[Any] = []
    failures: dict[str, PaddockError] = {}
    for sandbox_id in sandbox_ids:
        try:
            results.append({**act(sandbox_id), "sandbox_id": sandbox_id})
        except PaddockError as error:
            failures[sandbox_id] = error
        else:
            if not session.json:
                print(f"{sandbox_id} {done}")
    if failures:
        raise _together(session, failures, [result["sandbox_id"] for result in results])
    if session.json:
        output.print_json({"success": True, "sandboxes": results})


def _together(session: CliSession, failures: dict[str, PaddockError], done: list[str]) -> PaddockError:
    """The first failure; its details include the others if there were several sandboxes."""
    first, *others = failures.values()
    if others or done:
        first.details["done"] = done
        first.details["failed"] = {sandbox_id: error.message for sandbox_id, error in failures.items()}
    if not session.json:
        for error in others:
            output.print_error(error.message)
    return first


def _row(box: Sandbox) -> tuple[str, ...]:
    return (
        box.sandbox_id,
        output.state(box.status),
        box.user_id,
        output.escape(box.template_id),
        box.provider,
        output.ago(box.created_at),
        _next(box),
    )


def _next(box: Sandbox) -> str:
    if not (box.expires_action and box.expires_at):
        return ""
    when = output.until(box.expires_at)
    return when if when == output.NEVER else f"{box.expires_action} {when}"


def _show_new(box: Sandbox) -> None:
    if not sys.stdout.isatty():
        print(box.sandbox_id)
        return
    _show(box)
    output.note(f"\nTry: paddock exec {box.sandbox_id} -- uname -a")


def _counted(box: Sandbox) -> str:
    """What the timeout is counted from."""
    return "idle" if box.timeout_from == "activity" else "from its start"


def _timeout(box: Sandbox) -> str:
    span = output.span(box.timeout)
    return span if span == output.NEVER else f"{span} {_counted(box)}, then {box.on_timeout}"


def _mount(mount: MountInfo) -> str:
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def _show(box: Sandbox) -> None:
    resources = box.resources
    output.print_fields(
        {
            "sandbox": f"[bold]{box.sandbox_id}[/]  {output.state(box.status)}",
            "reason": output.escape(box.reason or ""),
            "user": box.user_id,
            "template": output.escape(box.template_id),
            "provider": box.provider,
            "resources": f"{resources.cpu:g} cpu, {resources.memory_mb} MB memory, {resources.disk_mb} MB disk",
            "egress": box.egress,
            "isolation": f"at least {box.isolation}" if box.isolation else "",
            "mounts": output.escape(", ".join(_mount(mount) for mount in box.mounts)),
            "ports": "public" if box.public_ports else "",
            "timeout": _timeout(box),
            "next": _next(box),
            "created": output.ago(box.created_at),
            "active": output.ago(box.last_activity_at),
            "metadata": output.escape(", ".join(f"{name}={value}" for name, value in box.metadata.items())),
            "MCP": output.escape(box.mcp_url),
            "VS Code": output.escape(box.vscode_url),
        }
    )


@command
def inspect(session: CliSession, sandbox_id: SandboxId) -> None:
    """Print everything that is known about a sandbox, as JSON. Does not resume it."""
    client = session.client
    document: dict[str, Any] = dict(client.get_status(sandbox_id))
    del document["message"]
    parts: dict[str, Callable[[str], Any]] = {
        "processes": client.list_processes,
        "metrics": client.metrics,
        "services": client.list_services,
        "mcp_servers": client.list_mcp_servers,
        "isolation_report": client.get_isolation,
        "egress_report": client.get_egress,
        "usage": client.get_sandbox_usage,
    }
    unknown: dict[str, str] = {}
    for name, look in parts.items():
        document[name] = None
        if name in ("processes", "metrics") and document["status"] != "running":
            unknown[name] = f"The sandbox is {document['status']}."
            continue
        try:
            document[name] = look(sandbox_id)
        except PaddockError as error:
            unknown[name] = error.message
    output.print_json({**document, "unknown": unknown})
