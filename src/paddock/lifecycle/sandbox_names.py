"""Names of sandboxes: their syntax, and that no two live sandboxes of an owner share one."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import AlreadyExists, Invalid
from paddock.store import sandboxes
from paddock.store.records import SandboxRow

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,126}[A-Za-z0-9])?", re.ASCII)


async def check_name(connection: AsyncConnection, sandbox: SandboxRow) -> None:
    """Call in the transaction that adds the row. A unique index rejects the second of two concurrent creates."""
    name = sandbox.name
    if name is None:
        return
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:200]!r} cannot be a name: letters, digits, '.', '_', '-' and blanks inside, at most 128 of them."
        )
    if await sandboxes.get_by_name(connection, sandbox.owner_id, name) is not None:
        raise AlreadyExists(f"Sandbox with name {name} already exists", details={"name": name})


async def with_free_name(connection: AsyncConnection, sandbox: SandboxRow) -> SandboxRow:
    """A sandbox that is adopted keeps its name, unless another has taken it meanwhile."""
    taken = sandbox.name is not None and await sandboxes.get_by_name(connection, sandbox.owner_id, sandbox.name)
    return replace(sandbox, name=None) if taken else sandbox
