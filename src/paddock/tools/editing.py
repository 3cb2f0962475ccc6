"""Exact text replacement: once unless all occurrences are requested, with helpful errors if it does not match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.tools.contents import MAX_TEXT
from paddock.tools.tool import ToolFailed

_MAX_SHOWN_LINES = 8


@dataclass(frozen=True, slots=True)
class Edit:
    old: str
    new: str
    every: bool = False
    """Replace every occurrence; otherwise there must be exactly one."""


@dataclass(frozen=True, slots=True)
class Replaced:
    text: str
    count: int
    first_line: int


def replace_all(text: str, crlf: bool, edits: Sequence[Edit]) -> Replaced:
    """Apply the edits in order; raises ToolFailed unless all apply. ``crlf``: every line of the text ends with CRLF."""
    count, first = 0, 0
    for number, edit in enumerate(edits, 1):
        try:
            done = _replace(text, crlf, edit)
        except ToolFailed as problem:
            if len(edits) == 1:
                raise
            raise ToolFailed(f"Edit {number} of {len(edits)}: {problem.message} Nothing was changed.") from None
        text, count, first = done.text, count + done.count, min(first or done.first_line, done.first_line)
    return Replaced(text, count, first)


def _replace(text: str, crlf: bool, edit: Edit) -> Replaced:
    old, new = (_with_crlf(part) if crlf else part for part in (edit.old, edit.new))
    if not old:
        raise ToolFailed("old_string is empty. To write a whole file, use write_file.")
    if old == new:
        raise ToolFailed("old_string and new_string are the same: there is nothing to change.")
    count = text.count(old)
    if count == 0 and "\r\n" in text and "\n" in old:  # a file of mixed line endings
        other = _with_crlf(old)
        if text.count(other):
            old, new, count = other, _with_crlf(new), text.count(other)
    if count == 0:
        raise ToolFailed(f"old_string is not in the file.{_hint(text, old)}")
    if count > 1 and not edit.every:
        lines = ", ".join(map(str, _lines_of(text, old)[:_MAX_SHOWN_LINES]))
        raise ToolFailed(
            f"old_string is in the file {count} times (lines {lines}{', …' if count > _MAX_SHOWN_LINES else ''}). "
            "Give more of the text around the right one, or set replace_all."
        )
    if len(text) + count * (len(new) - len(old)) > MAX_TEXT:
        raise ToolFailed(f"The file would become longer than {MAX_TEXT} characters. Nothing was changed.")
    return Replaced(text.replace(old, new), count, _lines_of(text, old)[0])


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(text: str, old: str) -> list[int]:
    found: list[int] = []
    at, line, seen = text.find(old), 1, 0
    while at != -1 and len(found) <= _MAX_SHOWN_LINES:
        line += text.count("\n", seen, at)
        seen = at
        found.append(line)
        at = text.find(old, at + len(old))
    return found


def _hint(text: str, old: str) -> str:
    """Find where the text would match except for white space, the most common mistake."""
    wanted = [line.strip() for line in old.strip("\r\n").splitlines()]
    if any(wanted):
        # Stripped lines contain no line ends, so one search in one string finds them all in linear time.
        lines = "".join(f"\n{line.strip()}" for line in text.splitlines()) + "\n"
        at = lines.find("".join(f"\n{line}" for line in wanted) + "\n")
        if at != -1:
            return (
                f" It differs only in white space from what begins at line {lines.count(chr(10), 0, at) + 1}: "
                "read those lines with read_file and copy them exactly, without the line numbers."
            )
    return " Read the file with read_file and copy the text exactly, without the line numbers."
