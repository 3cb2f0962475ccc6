"""A sandbox's isolation report and egress rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.session import CliSession, command

if TYPE_CHECKING:
    from paddock.client.answers import Egress, Isolation

Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE", help="Allow connections to: a domain, *.domain, address or network, optionally with :port."
    ),
]
Deny = Annotated[
    list[str] | None, typer.Option(metavar="RULE", help="Deny connections, in the same form; overrides --allow.")
]

Private = Annotated[
    list[str] | None,
    typer.Option(metavar="RULE", help="Open a private network, or a domain that may resolve into one; for admins."),
]


@command
def isolation(session: CliSession, sandbox_id: SandboxId) -> None:
    """Show a sandbox's isolation from the host, layer by layer."""
    found = session.client.get_isolation(sandbox_id)
    session.answer(found, lambda: _show_isolation(found))


@command
def egress(
    session: CliSession, sandbox_id: SandboxId, allow: Allow = None, deny: Deny = None, private: Private = None
) -> None:
    """Show a sandbox's egress rules and connections, or change the rules. Changes apply at once."""
    if allow is None and deny is None and private is None:
        found = session.client.get_egress(sandbox_id)
    else:
        found = session.client.set_egress(sandbox_id, allow=rules(allow), deny=rules(deny), private=rules(private))
    session.answer(found, lambda: _show_egress(found))


def rules(texts: Sequence[str] | None) -> list[str] | None:
    """The rules of an option; a single empty text clears the list."""
    return None if texts is None else [text for text in texts if text]


def egress_of(
    mode: str | None,
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
    private: Sequence[str] | None = None,
) -> dict[str, Any] | None:
    """The egress part of a create request; None if no option was given."""
    asked = {"mode": mode, "allow": rules(allow), "deny": rules(deny), "private": rules(private)}
    return {name: value for name, value in asked.items() if value is not None} or None


def mount_of(text: str) -> dict[str, Any]:
    """Parse ``host_dir:/path`` or ``host_dir:/path:ro``. The directory is relative to this machine's current one."""
    place, _, how = text.rpartition(":")
    read_only = how == "ro"
    if how not in ("ro", "rw"):
        place = text
    source, _, target = place.rpartition(":")
    if not source or not target.startswith("/"):
        raise typer.BadParameter(
            f"{text!r} is not of the form HOST_DIR:/PATH or HOST_DIR:/PATH:ro", param_hint="--mount"
        )
    return {"source": str(Path(source).expanduser().resolve()), "target": target, "read_only": read_only}


def _show_isolation(found: Isolation) -> None:
    asked = f" (at least {found.requested} was asked for)" if found.requested else ""
    output.print_fields({"sandbox": f"[bold]{found.sandbox_id}[/]", "isolation": f"[bold]{found.level}[/]{asked}"})
    print()
    output.print_table(
        ("", "LAYER", "BY, OR HOW TO FIX IT"),
        (
            ("[green]✓[/]" if layer.active else "[red]✗[/]", output.escape(layer.name), output.escape(layer.detail))
            for layer in found.layers
        ),
    )


def _show_egress(found: Egress) -> None:
    totals = found.totals
    everything = "everything public" if found.mode != "none" else "nothing"
    output.print_fields(
        {
            "sandbox": f"[bold]{found.sandbox_id}[/]",
            "egress": f"[bold]{found.mode}[/]",
            "allow": output.escape(", ".join(found.allow)) or everything,
            "deny": output.escape(", ".join(found.deny)),
            "private": output.escape(", ".join(found.private)),
            "connections": f"{totals.connections}, {totals.denied} denied",
            "traffic": f"{output.size(totals.bytes_up)} out, {output.size(totals.bytes_down)} in",
        }
    )
    if not found.latest:
        return
    print()
    output.print_table(
        ("", "AT", "HOST", "ADDRESS", "PORT", "OUT", "IN", "TIME", "REASON"),
        (
            (
                "[green]✓[/]" if each.allowed else "[red]✗[/]",
                output.local_time(each.at),
                output.escape(each.host),
                output.escape(each.address or ""),
                str(each.port),
                output.size(each.bytes_up),
                output.size(each.bytes_down),
                output.span(each.seconds),
                output.escape(each.reason),
            )
            for each in found.latest
        ),
    )
