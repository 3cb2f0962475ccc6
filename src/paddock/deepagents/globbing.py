"""Finds files by pattern: one ``find`` in the sandbox, and the pattern applied here, for both versions of deepagents.

Used only if the result is certainly that of ``BaseSandbox``'s scripts; None delegates to those: for patterns with
braces, relevant symlinks, a path that is not a directory, very large trees, or another ``find``.
"""

from __future__ import annotations

import fnmatch
import posixpath
import shlex
from collections.abc import Sequence

from deepagents.backends.protocol import FileInfo, GlobResult

from paddock.client.call import Steps, ask
from paddock.client.calls.processes import run_command
from paddock.deepagents.files import WRITES_OVER
from paddock.errors import Invalid
from paddock.models import CommandStatus

ABSOLUTE = WRITES_OVER
"""Since 0.7: absolute paths, files only, and a pattern without a slash matches names at any depth."""
_SECONDS = 10.0
_PRUNED = ("./proc", "./sys", "./dev")


def glob(sandbox_id: str, pattern: str, path: str | None, user: str | None) -> Steps[GlobResult | None]:
    root = path or "/"
    if not root.startswith("/") or not _is_plain(pattern):
        return None
    try:
        ran = yield from ask(
            run_command(sandbox_id, _command(root, pattern), timeout=_SECONDS, hard_timeout=_SECONDS, user=user)
        )
    except Invalid:
        return None
    if ran.status is not CommandStatus.COMPLETED or ran.exit_code or ran.truncated or ran.stderr:
        return None
    return _result(root, pattern, ran.stdout)


def _is_plain(pattern: str) -> bool:
    parts = pattern.split("/")
    if not pattern or any(part in ("", ".", "..") for part in parts) or any(sign in pattern for sign in "{}\\\0\n"):
        return False
    if "[^" in pattern or any("**" in part and part != "**" for part in parts):
        return False
    return parts[-1] != "**"


def _command(root: str, pattern: str) -> str:
    """Prints one record per candidate: type, type of the link's target, name. Symlinks are always listed."""
    name = pattern.rpartition("/")[2]
    pruned = " -o ".join(f"-path {each}" for each in _PRUNED) if posixpath.normpath(root) == "/" else ""
    prune = f"\\( {pruned} \\) -prune -o " if pruned else ""
    wanted = f"\\( -name {shlex.quote(name)} -o -type l \\) -printf '%y%Y%P\\0'"
    return f"cd -- {shlex.quote(root)} && exec find . -mindepth 1 {prune}{wanted}"


def _result(root: str, pattern: str, told: str) -> GlobResult | None:
    matches: list[FileInfo] = []
    for line in told.split("\0")[:-1]:
        is_link, target, name = line[0] == "l", line[1], line[2:]
        fits = _matches(name, pattern)
        if is_link and (target == "f" and fits if ABSOLUTE else target == "d"):
            return None  # it may lead out of the root, which 0.7 rejects, or deeper, which 0.6 follows
        if fits and (target == "f" or (target == "d" and not ABSOLUTE)):
            shown = posixpath.join(root, name) if ABSOLUTE else name
            matches.append(FileInfo(path=shown, is_dir=target == "d"))
    return GlobResult(matches=sorted(matches, key=lambda info: info["path"]))


def _matches(name: str, pattern: str) -> bool:
    if ABSOLUTE and "/" not in pattern:
        return _part(name.rpartition("/")[2], pattern)
    return _parts(name.split("/"), pattern.split("/"))


def _parts(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """``**`` matches any number of directories that are not hidden."""
    reached = {0}
    for pattern in patterns:
        if pattern == "**":
            for start in sorted(reached):
                at = start
                while at < len(names) and not names[at].startswith("."):
                    at += 1
                    reached.add(at)
        else:
            reached = {at + 1 for at in reached if at < len(names) and _part(names[at], pattern)}
    return len(names) in reached


def _part(name: str, pattern: str) -> bool:
    """A name with a leading dot is matched only by a pattern with one."""
    return (not name.startswith(".") or pattern.startswith(".")) and fnmatch.fnmatchcase(name, pattern)
