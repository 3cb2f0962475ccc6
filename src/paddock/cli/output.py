"""Output of commands: tables and colours on a terminal, plain text in a pipe, JSON for programs."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from paddock import errors
from paddock.cli import markup
from paddock.errors import PaddockError
from paddock.redaction import visible

if TYPE_CHECKING:
    from rich.console import Console

STATE_COLOURS = {
    "running": "green",
    "ok": "green",
    "completed": "green",
    "paused": "yellow",
    "degraded": "yellow",
    "failed": "red",
    "deleted": "dim",
}


NEVER = "never"
_NEVER_S = 20 * 365 * 86_400
"""Longer times are shown as "never": the facades store that as 63 years."""
_SPANS = (
    (365 * 86_400, "y", 86_400, "d"),
    (86_400, "d", 3600, "h"),
    (3600, "h", 60, "min"),
    (60, "min", 1, "s"),
)


_UNUSED = ("httpx._main", "h2")


@contextmanager
def importing() -> Iterator[None]:
    """Speed up the imports of the client. ``httpx`` must not import its command line and HTTP/2, which are optional:
    ``None`` in ``sys.modules`` makes an import fail. Pydantic must not search all installed packages for plugins. The
    imported modules live as long as the process, so they are excluded from garbage collection."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    left_out = [name for name in _UNUSED if name not in sys.modules]
    sys.modules |= dict.fromkeys(left_out)  # type: ignore[arg-type]
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]
        gc.freeze()
        if collecting:
            gc.enable()


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Output into a pipe is never cut to a screen width.
    return Console(file=stream, width=None if stream.isatty() else 10_000, highlight=False, soft_wrap=True)


def print_json(document: Any) -> None:
    print(_json(document, indent=2))


def print_line_json(document: Any) -> None:
    print(_json(document), flush=True)


def _json(document: Any, indent: int | None = None) -> str:
    """Escape the control characters that JSON leaves as they are and terminals interpret: 8-bit control codes."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_plain)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str = "") -> None:
    """Columns without borders, so that ``cut`` and ``sort`` work; ``empty`` is printed when there are no rows."""
    shown = [tuple(map(printable, row)) for row in rows]
    if not shown and empty:
        note(empty)
        return
    if not sys.stdout.isatty():
        print(markup.plain_table(columns, shown))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in shown:
        table.add_row(*row)
    console().print(table)


def print_fields(fields: Mapping[str, str | None]) -> None:
    """Names and values, one per line; fields without a value are omitted.

    A URL that does not fit beside its name is printed on a line of its own and never wrapped: the terminal breaks it
    visually, but still opens it as one link.
    """
    shown = {name: visible(value, keep="\n") for name, value in fields.items() if value}
    if not sys.stdout.isatty():
        print(markup.plain_fields(shown))
        return
    from rich.table import Table
    from rich.text import Text

    width, screen = max(map(len, shown), default=0), console()
    for name, value in shown.items():
        text = Text.from_markup(value)
        if "://" in text.plain and width + 4 + text.cell_len > screen.width:
            screen.print(Text(name, "dim"))
            screen.print(text)
            continue
        row = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        row.add_column(style="dim", no_wrap=True, min_width=width)
        row.add_column(overflow="fold")
        row.add_row(name, text)
        screen.print(row)


def escape(text: object) -> str:
    """Text from outside, for a table: markup and terminal control sequences have no effect."""
    return markup.escape(printable(text))


def printable(text: object) -> str:
    """The text on one line, with control characters made visible."""
    return visible(text)


def state(name: str) -> str:
    colour = STATE_COLOURS.get(name)
    return f"[{colour}]{name}[/]" if colour else name


def note(text: str) -> None:
    """A message to the user, on standard error."""
    print(visible(text, keep="\n\t"), file=sys.stderr)


def print_text(text: str, *, stderr: bool = False) -> None:
    """Text from a sandbox or the server. Control characters are made visible on a terminal; in a pipe it is unchanged.

    The output of the user's programs (``exec``, ``logs``, ``run-code``) is not printed by this function but passed on
    unchanged, because it may contain colours and cursor movements on purpose.
    """
    stream = sys.stderr if stderr else sys.stdout
    print(visible(text, keep="\n\t") if stream.isatty() else text, file=stream, flush=True)


def print_error(message: str, hint: str | None = None) -> None:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    typer.echo(typer.style("Error:", fg="red", bold=True) if coloured else "Error:", nl=False, err=True)
    typer.echo(" " + visible(message, keep="\n\t"), err=True)
    if hint:
        typer.echo("Hint: " + visible(hint), err=True)


def error_document(error: PaddockError) -> dict[str, Any]:
    """The API's error format (``models.ErrorAnswer``)."""
    body = {
        "code": error.code,
        "message": error.message,
        "status": error.status,
        "details": error.details,
        "request_id": error.request_id or "",
    }
    return {"success": False, "error": body}


def hint_for(error: PaddockError) -> str | None:
    match error:
        case errors.PaddockError(code="server_unreachable"):
            return "a server elsewhere is named with --server or PADDOCK_URL."
        case errors.Unauthorized():
            return "give a key with --api-key or PADDOCK_API_KEY; `paddock up` prints the path of the first one."
        case errors.SandboxNotFound():
            return "`paddock list` shows the sandboxes that this key can see."
        case errors.TooManyRequests() if error.retry_after:
            return f"try again in {span(error.retry_after)}."
    return None


def span(seconds: float) -> str:
    """A duration in at most two units: ``45 s``, ``3 min``, ``1 h 5 min``, ``2 d``, ``1 y 30 d``."""
    if seconds >= _NEVER_S:
        return NEVER
    whole = max(0, round(seconds))
    for size, unit, below, small in _SPANS:
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def ago(timestamp: str | None) -> str:
    """How long ago, roughly."""
    if not timestamp:
        return ""
    seconds = -_from_now(timestamp)
    return f"{_roughly(seconds)} ago" if seconds >= 1 else "just now"


def until(timestamp: str | None) -> str:
    if not timestamp:
        return ""
    rest = _roughly(_from_now(timestamp))
    return rest if rest == NEVER else f"in {rest}"


def local_time(timestamp: str) -> str:
    return f"{datetime.fromisoformat(timestamp).astimezone():%Y-%m-%d %H:%M:%S}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _roughly(seconds: float) -> str:
    return span(seconds if seconds < 600 else round(seconds / 60) * 60)


def _from_now(timestamp: str) -> float:
    return (datetime.fromisoformat(timestamp) - datetime.now(UTC)).total_seconds()


def _plain(value: Any) -> Any:
    """The client's answers are mappings."""
    return dict(value)
