"""Converts git's output to Daytona's format.

The output is untrusted and may be long, so this runs in a worker process if it is large.
"""

from __future__ import annotations

import json
import re
from typing import Any

from paddock.clock import iso
from paddock.errors import PayloadTooLarge

MAX_ENTRIES = 20_000
_MAX_SECONDS_DIGITS = 11
_WORDS = {
    ".": "Unmodified",
    " ": "Unmodified",
    "?": "Untracked",
    "M": "Modified",
    "T": "Modified",
    "A": "Added",
    "D": "Deleted",
    "R": "Renamed",
    "C": "Copied",
    "U": "Updated but unmerged",
}


def status(said: bytes) -> bytes:
    """Parses ``git status --porcelain=v2 --branch -z``."""
    heads: dict[str, str] = {}
    files: list[dict[str, str]] = []
    records = iter(_records(said, "\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        match kind:
            case "#":
                name, _, value = rest.partition(" ")
                heads[name] = value
            case "1":
                files += _changed(rest, 7)
            case "2":
                files += [{**file, "extra": next(records, "")} for file in _changed(rest, 8)]
            case "u":
                files += [{**file, **_letters("UU")} for file in _changed(rest, 9)]
            case "?":
                files.append(_file(rest, "??"))
    return _json({**_branch(heads), "fileStatus": files})


def history(said: bytes) -> bytes:
    """Parses ``git log -z`` with five fields."""
    found = []
    for record in _records(said, "\0"):
        commit, *rest = record.split("\x1f", 4)
        if len(rest) != 4:
            continue
        author, email, at, message = rest
        if not (at.isascii() and at.isdigit() and len(at) <= _MAX_SECONDS_DIGITS):
            continue
        about = {"hash": commit.strip(), "author": author, "email": email, "message": message.strip("\n")}
        found.append({**about, "timestamp": iso(float(at))})
    return _json(found)


def branches(said: bytes, current: str) -> bytes:
    """Parses ``git for-each-ref``, one name per line."""
    found: dict[str, Any] = {"branches": [name for name in _records(said, "\n") if name]}
    return _json({**found, "current": current} if current else found)


def remotes(said: bytes) -> bytes:
    """Parses ``git config --get-regexp``, one name and value per line."""
    found = [line.partition(" ") for line in _records(said, "\n") if line]
    shown = [{"name": name.removeprefix("remote.").removesuffix(".url"), "url": url} for name, _, url in found]
    return _json({"remotes": shown})


def _records(said: bytes, end: str) -> list[str]:
    if said.count(end.encode()) > MAX_ENTRIES:
        raise PayloadTooLarge(f"Git lists more than {MAX_ENTRIES} entries.")
    return said.decode(errors="replace").split(end)


def _changed(rest: str, before: int) -> list[dict[str, str]]:
    """A file whose name follows this number of fields; None for an invalid line."""
    fields = rest.split(" ", before)
    return [_file(fields[before], fields[0])] if len(fields) > before and len(fields[0]) == 2 else []


def _file(name: str, letters: str) -> dict[str, str]:
    return {"name": name, "extra": "", **_letters(letters)}


def _letters(two: str) -> dict[str, str]:
    staging, worktree = (_WORDS.get(letter, "Unmodified") for letter in two)
    return {"staging": staging, "worktree": worktree}


def _branch(heads: dict[str, str]) -> dict[str, Any]:
    name = heads.get("branch.head", "")
    detached = name == "(detached)"
    found: dict[str, Any] = {
        "currentBranch": heads.get("branch.oid", "") if detached else name,
        "branchPublished": "branch.upstream" in heads,
        "detached": detached,
    }
    if "branch.upstream" in heads:
        found["upstream"] = heads["branch.upstream"]
    ahead_behind = re.fullmatch(r"\+(\d{1,18}) -(\d{1,18})", heads.get("branch.ab", ""))
    return found | ({"ahead": int(ahead_behind[1]), "behind": int(ahead_behind[2])} if ahead_behind else {})


def _json(found: object) -> bytes:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
