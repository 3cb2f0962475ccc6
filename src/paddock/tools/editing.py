"""Replacing text in text: exactly, once unless all is asked for, and with a helpful word where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.tools.contents import Contents
from paddock.tools.tool import ToolFailed

_SHOWN_PLACES = 8


@dataclass(frozen=True, slots=True)
class Replaced:
    text: str
    count: int
    first_line: int


def replace(contents: Contents, old: str, new: str, every: bool, *, text: str | None = None) -> Replaced:
    """``text``: what became of the contents so far, where several changes follow each other."""
    text = contents.text if text is None else text
    old, new = contents.as_here(old), contents.as_here(new)
    if not old:
        raise ToolFailed("old_string is empty. To write a whole file, use write_file.")
    if old == new:
        raise ToolFailed("old_string and new_string are the same: there is nothing to change.")
    count = text.count(old)
    if count == 0 and "\r\n" in text and "\n" in old:  # a file of mixed line endings
        other = old.replace("\r\n", "\n").replace("\n", "\r\n")
        if text.count(other):
            old, new, count = other, new.replace("\r\n", "\n").replace("\n", "\r\n"), text.count(other)
    if count == 0:
        raise ToolFailed(f"old_string is not in the file.{_hint(text, old)}")
    if count > 1 and not every:
        lines = ", ".join(map(str, _lines_of(text, old)[:_SHOWN_PLACES]))
        raise ToolFailed(
            f"old_string is in the file {count} times (lines {lines}{', …' if count > _SHOWN_PLACES else ''}). "
            "Give more of the text around the right one, or set replace_all."
        )
    return Replaced(text.replace(old, new), count, _lines_of(text, old)[0])


def _lines_of(text: str, old: str) -> list[int]:
    found: list[int] = []
    at, line, seen = text.find(old), 1, 0
    while at != -1 and len(found) <= _SHOWN_PLACES:
        line += text.count("\n", seen, at)
        seen = at
        found.append(line)
        at = text.find(old, at + len(old))
    return found


def _hint(text: str, old: str) -> str:
    """Where it would fit but for white space; that is what is usually wrong."""
    wanted = [line.strip() for line in old.strip("\r\n").splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    if any(wanted):
        for number in range(len(lines) - len(wanted) + 1):
            if lines[number : number + len(wanted)] == wanted:
                return (
                    f" It differs only in white space from what begins at line {number + 1}: "
                    "read those lines with read_file and copy them exactly, without the line numbers."
                )
    return " Read the file with read_file and copy the text exactly, without the line numbers."
