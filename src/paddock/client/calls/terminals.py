"""A terminal in a sandbox."""

from __future__ import annotations

from paddock.client.call import given
from paddock.client.terminal import TerminalCall


def terminal(
    sandbox_id: str,
    command: str | None = None,
    *,
    rows: int | None = None,
    cols: int | None = None,
    cwd: str | None = None,
    user: str | None = None,
    process_id: str | None = None,
    offset: int | None = None,
) -> TerminalCall:
    """A login shell (or ``command``) on a PTY, as a context manager: write to it, and iterate over its output.

    The process keeps running when the context is left. ``process_id`` attaches to a running process, and ``offset`` is
    the first byte of its output to be sent; the other arguments then have no effect.
    """
    return TerminalCall(
        sandbox_id,
        given(command=command, rows=rows, cols=cols, cwd=cwd, user=user, process_id=process_id, offset=offset),
    )
