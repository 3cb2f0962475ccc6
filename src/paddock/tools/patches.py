"""Parses patches: the ``*** Begin Patch`` form that models write, and unified diffs as produced by git."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.tools.tool import ToolFailed


class PatchAction(StrEnum):
    ADD = "added"
    UPDATE = "updated"
    DELETE = "deleted"


@dataclass
class Hunk:
    lines: list[tuple[str, str]] = field(default_factory=list)
    """`` ``, ``-`` or ``+``, and the line."""
    anchors: list[str] = field(default_factory=list)
    """Lines that come before the hunk: the class, the function."""
    at: int | None = None
    """Its line number, if the patch gives it."""
    at_end: bool = False
    newline_at_end: bool | None = None
    """Whether the file then ends with a newline; None: as before."""

    @property
    def old(self) -> list[str]:
        return [line for mark, line in self.lines if mark != "+"]


@dataclass
class Change:
    act: PatchAction
    path: str
    moved_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list)

    def lines(self, mark: str) -> int:
        return sum(each == mark for hunk in self.hunks for each, _ in hunk.lines)


MAX_FILES = 1000
"""Maximum files that one patch may change."""


def read(patch: str) -> list[Change]:
    text = patch.replace("\r\n", "\n").strip("\n")
    stripped = text.strip()
    if "*** Begin Patch" in stripped:
        changes = _read_envelope(text)
    elif re.search(r"^--- \S", text, re.MULTILINE) or text.startswith("diff --git "):
        changes = _read_unified(text)
    else:
        raise ToolFailed(
            "This is no patch. Begin with `*** Begin Patch` and `*** Update File: path`, or give a unified diff "
            "(`--- a/path`, `+++ b/path`, `@@ -1,3 +1,4 @@`)."
        )
    if not changes:
        raise ToolFailed("The patch changes nothing: it names no file.")
    if len(changes) > MAX_FILES:
        raise ToolFailed(f"The patch changes more than {MAX_FILES} files: apply it in parts, or with git apply.")
    return changes


_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")


def _read_envelope(text: str) -> list[Change]:
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    if begin is None:
        raise ToolFailed("`*** Begin Patch` must be on a line of its own.")
    changes: list[Change] = []
    for number, line in enumerate(lines[begin + 1 :], begin + 2):
        if line.strip() == "*** End Patch":
            return changes
        if named := _FILE.fullmatch(line.rstrip()):
            act = {"Add": PatchAction.ADD, "Update": PatchAction.UPDATE, "Delete": PatchAction.DELETE}[named[1]]
            changes.append(Change(act, named[2].strip(), hunks=[Hunk()] if act is PatchAction.ADD else []))
        elif not changes:
            raise ToolFailed(f"Line {number} of the patch comes before any file: {line[:100]!r}")
        else:
            _read_line(changes[-1], line, number)
    raise ToolFailed("The patch has no `*** End Patch`: it seems to be cut off. Nothing was changed.")


def _read_line(change: Change, line: str, number: int) -> None:
    if change.act is PatchAction.DELETE:
        if line.strip():
            raise ToolFailed(f"Line {number} of the patch: a deleted file has no lines, but there is {line[:100]!r}.")
    elif change.act is PatchAction.ADD:
        if line.startswith("+"):
            change.hunks[0].lines.append(("+", line[1:]))
        elif line.strip():
            raise ToolFailed(f"Line {number} of the patch: each line of a new file begins with +, not {line[:100]!r}.")
    elif line.startswith("*** Move to: "):
        change.moved_to = line.removeprefix("*** Move to: ").strip()
    elif line.strip() == "*** End of File":
        _open(change).at_end = True
    elif line.startswith("@@"):
        anchor = line[2:].strip().removesuffix("@@").strip()
        if not change.hunks or change.hunks[-1].lines:
            change.hunks.append(Hunk())
        if place := re.match(r"-(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})?$", anchor):
            change.hunks[-1].at = int(place[1])
        elif anchor:
            change.hunks[-1].anchors.append(anchor)
    elif line[:1] in (" ", "-", "+") or not line:
        _open(change).lines.append((line[:1] or " ", line[1:]))
    else:
        raise ToolFailed(f"Line {number} of the patch begins with neither space, - nor +: {line[:100]!r}")


def _open(change: Change) -> Hunk:
    if not change.hunks:
        change.hunks.append(Hunk())
    return change.hunks[-1]


_PLACE = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def _read_unified(text: str) -> list[Change]:
    changes: list[Change] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise ToolFailed("The patch has a binary file in it: apply it with git apply, through run_command.")
        if line.startswith("rename from ") and lines[at : at + 1] and lines[at].startswith("rename to "):
            changes.append(Change(PatchAction.UPDATE, line[12:], moved_to=lines[at][10:]))
            at += 1
        elif line.startswith("--- ") and lines[at : at + 1] and lines[at].startswith("+++ "):
            _name(changes, _path(line[4:], "a/"), _path(lines[at][4:], "b/"))
            at += 1
        elif place := _PLACE.match(line):
            if not changes:
                raise ToolFailed("The patch has a hunk before any `---` and `+++`.")
            at = _read_hunk(changes[-1], place, lines, at)
    return changes


def _name(changes: list[Change], old: str | None, new: str | None) -> None:
    if old is None and new is None:
        raise ToolFailed("The patch has a file that is /dev/null on both sides.")
    if old is None:
        changes.append(Change(PatchAction.ADD, new or ""))
    elif new is None:
        changes.append(Change(PatchAction.DELETE, old))
    elif not changes or (changes[-1].path, changes[-1].moved_to) != (old, new):  # else lines of a rename
        changes.append(Change(PatchAction.UPDATE, old, moved_to=None if new == old else new))


def _read_hunk(change: Change, place: re.Match[str], lines: list[str], at: int) -> int:
    """Read a hunk by its line counts, because a line may look like the start of the next file."""
    old, new = (int(count) if count is not None else 1 for count in (place[2], place[4]))
    hunk = Hunk(at=int(place[1]))
    while (old > 0 or new > 0) and at < len(lines):
        mark, rest = lines[at][:1] or " ", lines[at][1:]
        if mark not in " -+\\":
            break
        if mark == "\\":
            _no_newline(hunk)
        else:
            hunk.lines.append((mark, rest))
            old -= mark != "+"
            new -= mark != "-"
        at += 1
    if at < len(lines) and lines[at].startswith("\\"):
        _no_newline(hunk)
        at += 1
    if old > 0 or new > 0:
        raise ToolFailed(f"The hunk `{place[0]}` of {change.path} has fewer lines than it says. Nothing was changed.")
    change.hunks.append(hunk)
    return at


def _no_newline(hunk: Hunk) -> None:
    """Applies to the line before. For a removed line it means that the file has a final newline from now on."""
    hunk.newline_at_end = bool(hunk.lines) and hunk.lines[-1][0] == "-"


def _path(name: str, prefix: str) -> str | None:
    name = name.split("\t")[0].strip().strip('"')
    return None if name == "/dev/null" else name.removeprefix(prefix)
