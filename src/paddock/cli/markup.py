"""Rich's markup for output into a pipe: importing Rich only to remove the colours would take too long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_TAG = re.compile(r"(\\*)\[([a-z#/@][^[]*?)\]")


def escape(text: str) -> str:
    """Escape the text so that no part of it is read as markup, like ``rich.markup.escape``."""
    text = _TAG.sub(r"\1\1\\[\2]", text)
    return f"{text}\\" if text.endswith("\\") and not text.endswith("\\\\") else text


def plain(text: str) -> str:
    """The text without markup."""
    return _TAG.sub(_shown, text)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [list(columns), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def plain_fields(fields: Mapping[str, str]) -> str:
    """One line per name and value; further lines of a value are indented below its first."""
    width = max(map(len, fields), default=0)
    return "\n".join(
        f"{name if number == 0 else '':<{width}}  {line}".rstrip()
        for name, value in fields.items()
        for number, line in enumerate(plain(value).split("\n"))
    )


def _shown(found: re.Match[str]) -> str:
    backslashes, escaped = divmod(len(found[1]), 2)
    return "\\" * backslashes + (f"[{found[2]}]" if escaped else "")
