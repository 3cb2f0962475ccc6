"""Git as the sandbox's own program does it, and its failures as Daytona's clients tell them apart.

Credentials are handed to git in its environment, for the one call that they are meant for; they are in no command line,
no file and no log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import Inside
from paddock.clock import iso
from paddock.machine.base import ProcessStatus

_SECONDS = 600.0
_MAX_OUTPUT = 16 << 20
_HELPER = '!f() { printf "username=%s\\npassword=%s\\n" "$PADDOCK_GIT_USERNAME" "$PADDOCK_GIT_PASSWORD"; }; f'
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
_FAILURES: tuple[tuple[str, int, str], ...] = (
    (
        r"authentication failed|could not read username|could not read password|permission denied \(|invalid username",
        401,
        "GIT_AUTH_FAILED",
    ),
    (r"a branch named .* already exists|branch .* already exists", 409, "GIT_BRANCH_EXISTS"),
    (
        r"repository .*not found|does not appear to be a git repository|not a git repository|"
        r"repository .* does not exist",
        404,
        "GIT_REPO_NOT_FOUND",
    ),
    (
        r"pathspec .* did not match|remote branch .* not found|branch .* not found|couldn't find remote ref|"
        r"src refspec .* does not match|invalid reference",
        404,
        "GIT_BRANCH_NOT_FOUND",
    ),
    (r"would be overwritten|please commit your changes or stash", 409, "GIT_DIRTY_WORKTREE"),
    (r"non-fast-forward|fetch first|\[rejected\]|updates were rejected", 409, "GIT_PUSH_REJECTED"),
    (r"\[remote rejected\]", 422, "GIT_REMOTE_REJECTED"),
    (r"merge conflict|automatic merge failed|needs merge|unmerged files|unmerged paths", 409, "GIT_MERGE_CONFLICT"),
    (
        r"could not resolve host|unable to access|connection (?:refused|timed out|reset)|early eof|"
        r"network is unreachable",
        502,
        "GIT_TRANSPORT_FAILED",
    ),
)


class Git:
    """In one directory, which need not be a repository yet."""

    def __init__(self, inside: Inside, path: str) -> None:
        self._inside = inside
        self.path = inside.resolve(path)

    async def __call__(self, *words: str, env: Mapping[str, str] | None = None, outside: bool = False) -> str:
        """What it says; a failure is raised. ``outside``: not in the directory, but about it."""
        code, stdout, stderr = await self.attempt(*words, env=env, outside=outside)
        if code != 0:
            raise _failed(stderr or stdout)
        return stdout

    async def attempt(
        self, *words: str, env: Mapping[str, str] | None = None, outside: bool = False
    ) -> tuple[int, str, str]:
        argv = ["git", *([] if outside else ["-C", self.path]), *words]
        quiet = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", "GIT_EDITOR": "true"}
        label = " ".join(["git", *words])
        spec = self._inside.spec(argv, label=label, env={**quiet, **(env or {})}, hard_timeout=_SECONDS)
        info, stdout, stderr = await self._inside.machine.run(spec, None, _MAX_OUTPUT)
        await self._inside.use.record(commands=1, event=("command.finished", {"command": label[:1000]}))
        if info.status is ProcessStatus.TIMED_OUT:
            raise DaytonaError(408, "git took too long", "PROCESS_EXECUTION_TIMEOUT", DAEMON)
        if info.exit_code == 127:
            raise DaytonaError(501, "git is not installed in this sandbox", "NOT_SUPPORTED", DAEMON)
        texts = [chunk.data.decode(errors="replace") for chunk in (stdout, stderr)]
        return -1 if info.exit_code is None else info.exit_code, texts[0], texts[1]

    async def remote(
        self, words: Sequence[str], username: str | None, password: str | None, *, outside: bool = False
    ) -> str:
        """A call that may have to say who it is."""
        if not (username or password):
            return await self(*words, outside=outside)
        env = {"PADDOCK_GIT_USERNAME": username or "git", "PADDOCK_GIT_PASSWORD": password or ""}
        who = ["-c", "credential.helper=", "-c", f"credential.helper={_HELPER}"]
        return await self(*who, *words, env=env, outside=outside)

    async def status(self) -> dict[str, Any]:
        said = await self("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
        return read_status(said)

    async def history(self) -> list[dict[str, Any]]:
        code, said, problem = await self.attempt("log", "-z", "--format=%H%x1f%an%x1f%ae%x1f%ct%x1f%B")
        if code != 0:
            if "does not have any commits yet" in problem:
                return []
            raise _failed(problem)
        found = []
        for record in said.split("\0"):
            if record.count("\x1f") >= 4:
                commit, author, email, at, message = record.split("\x1f", 4)
                if not (at.isascii() and at.isdigit() and len(at) < 12):
                    continue
                found.append(
                    {
                        "hash": commit.strip(),
                        "author": author,
                        "email": email,
                        "message": message.strip("\n"),
                        "timestamp": iso(float(at)),
                    }
                )
        return found


def read_status(said: str) -> dict[str, Any]:
    """``git status --porcelain=v2 --branch -z`` in Daytona's words."""
    heads: dict[str, str] = {}
    files: list[dict[str, str]] = []
    records = iter(said.split("\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        match kind:
            case "#":
                name, _, value = rest.partition(" ")
                heads[name] = value
            case "1":
                fields = rest.split(" ", 7)
                files.append(_file(fields[7], fields[0]))
            case "2":
                fields = rest.split(" ", 8)
                files.append({**_file(fields[8], fields[0]), "extra": next(records, "")})
            case "u":
                files.append(_file(rest.split(" ", 9)[9], "UU"))
            case "?":
                files.append(_file(rest, "??"))
    branch = heads.get("branch.head", "")
    detached = branch == "(detached)"
    found: dict[str, Any] = {
        "currentBranch": heads.get("branch.oid", "") if detached else branch,
        "fileStatus": files,
        "branchPublished": "branch.upstream" in heads,
        "detached": detached,
    }
    if "branch.upstream" in heads:
        found["upstream"] = heads["branch.upstream"]
    ahead_behind = re.fullmatch(r"\+(\d+) -(\d+)", heads.get("branch.ab", ""))
    if ahead_behind:
        found |= {"ahead": int(ahead_behind[1]), "behind": int(ahead_behind[2])}
    return found


def _file(name: str, letters: str) -> dict[str, str]:
    return {
        "name": name,
        "extra": "",
        "staging": _WORDS.get(letters[0], "Unmodified"),
        "worktree": _WORDS.get(letters[1], "Unmodified"),
    }


def _failed(said: str) -> DaytonaError:
    text = said.strip()[-2000:] or "git failed"
    for pattern, status, code in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return DaytonaError(status, text, code, DAEMON)
    if re.search(r"cannot change to .*no such file", text, re.IGNORECASE | re.DOTALL):
        return DaytonaError(404, text, "GIT_REPO_NOT_FOUND", DAEMON)
    return DaytonaError(400, text, "GIT_OPERATION_FAILED", DAEMON)
