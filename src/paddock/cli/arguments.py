"""Arguments shared by several commands, and their parsers."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from paddock.cli.session import CliSession
from paddock.errors import PaddockError

# The API's enums, repeated: importing the models would double the time of `--help`. A test compares them.
Action = Literal["pause", "delete"]
Status = Literal["creating", "running", "pausing", "paused", "resuming", "deleting", "deleted", "failed"]
Role = Literal["admin", "member"]
Egress = Literal["none", "proxy", "full"]
Isolation = Literal["basic", "standard", "strict", "hardened"]


def complete_sandbox_id(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Sandbox ids with their status, from the server. No output on errors, as shell completion must stay silent."""
    named = {**ctx.find_root().params, **{name: value for name, value in ctx.params.items() if value}}
    session = CliSession(named.get("server"), named.get("api_key"))
    try:
        page = session.client.list_sandboxes(limit=100)
    except (PaddockError, OSError, ValueError):
        return []
    finally:
        session.close()
    return [(box.sandbox_id, box.status.value) for box in page.sandboxes if box.sandbox_id.startswith(incomplete)]


SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The sandbox's id.", autocompletion=complete_sandbox_id)]
SandboxIds = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of sandboxes.", autocompletion=complete_sandbox_id)
]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """``["A=1", "B=2"]`` as a mapping."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint=option)
        found[name] = value
    return found or None


def login_name() -> str:
    """The login name, reduced to characters that a ``user_id`` may have."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:63].strip("-") or "user"
