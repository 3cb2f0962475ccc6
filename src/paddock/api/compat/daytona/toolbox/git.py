"""Runs the sandbox's git, and classifies its errors as Daytona's clients expect.

Credentials are passed in the environment of the one call that needs them; they appear in no command line, file or log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox import git_output
from paddock.api.compat.daytona.toolbox.inside import ToolboxContext
from paddock.errors import PayloadTooLarge
from paddock.machine.base import ProcessStatus

_SECONDS = 600.0
_MAX_OUTPUT = 1 << 20
"""Maximum bytes of each stream, for commands without long output."""
_MAX_LISTED = 4 << 20
"""Maximum bytes of a list: the history of 20,000 commits."""
_COPIES_OF_LISTED = 3
"""Copies in memory: git's output, the worker's input, and the answer."""
_ENTRY_BYTES = 100
"""Overhead of parsing one entry, in bytes of input."""
_HELPER = '!f() { printf "username=%s\\npassword=%s\\n" "$PADDOCK_GIT_USERNAME" "$PADDOCK_GIT_PASSWORD"; }; f'
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


@dataclass(frozen=True, slots=True)
class GitResult:
    exit_code: int
    stdout: bytes
    stderr: bytes
    whole: bool
    """Whether ``stdout`` is complete."""

    @property
    def failure(self) -> DaytonaError:
        return _failed(_text(self.stderr) or _text(self.stdout))


class Git:
    """Git in one directory, which may not be a repository yet."""

    def __init__(self, inside: ToolboxContext, path: str) -> None:
        self._inside = inside
        self.path = inside.resolve(path)

    async def __call__(self, *words: str, env: Mapping[str, str] | None = None, outside: bool = False) -> None:
        """Run git; raises if it fails. ``outside``: run in the parent directory."""
        said = await self.attempt(*words, env=env, outside=outside)
        if said.exit_code != 0:
            raise said.failure

    async def ask(self, *words: str) -> str:
        """Run git and return its output, which is a few lines."""
        said = await self.attempt(*words)
        if said.exit_code != 0:
            raise said.failure
        return whole_text(said)

    async def attempt(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        outside: bool = False,
        limit: int = _MAX_OUTPUT,
    ) -> GitResult:
        argv = ["git", *([] if outside else ["-C", self.path]), *words]
        quiet = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", "GIT_EDITOR": "true"}
        label = " ".join(["git", *words])
        spec = self._inside.spec(argv, label=label, env={**quiet, **(env or {})}, hard_timeout=_SECONDS)
        info, stdout, stderr = await self._inside.machine.run(spec, None, limit)
        await self._inside.use.record(commands=1, event=("command.finished", {"command": label[:1000]}))
        if info.status is ProcessStatus.TIMED_OUT:
            raise DaytonaError(408, "git took too long", "PROCESS_EXECUTION_TIMEOUT", DAEMON)
        if info.exit_code == 127:
            raise DaytonaError(501, "git is not installed in this sandbox", "NOT_SUPPORTED", DAEMON)
        whole = not stdout.skipped and stdout.end >= info.stdout_size
        return GitResult(-1 if info.exit_code is None else info.exit_code, stdout.data, stderr.data, whole)

    async def remote(
        self, words: Sequence[str], username: str | None, password: str | None, *, outside: bool = False
    ) -> None:
        """Run git with credentials, if any are given."""
        if not (username or password):
            await self(*words, outside=outside)
            return
        env = {"PADDOCK_GIT_USERNAME": username or "git", "PADDOCK_GIT_PASSWORD": password or ""}
        who = ["-c", "credential.helper=", "-c", f"credential.helper={_HELPER}"]
        await self(*who, *words, env=env, outside=outside)

    # Lists of any length, returned as JSON

    async def status(self) -> bytes:
        said = await self._list("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
        if said.exit_code != 0:
            raise said.failure
        return await self._answer(said, b"\0", git_output.status)

    async def history(self) -> bytes:
        said = await self._list("log", "-z", "--format=%H%x1f%an%x1f%ae%x1f%ct%x1f%B")
        if said.exit_code != 0 and b"does not have any commits yet" in said.stderr:
            return b"[]"
        if said.exit_code != 0:
            raise said.failure
        return await self._answer(said, b"\0", git_output.history)

    async def branches(self) -> bytes:
        said = await self._list("for-each-ref", "--format=%(refname:short)", "refs/heads")
        if said.exit_code != 0:
            raise said.failure
        current = (await self.ask("branch", "--show-current")).strip()
        return await self._answer(said, b"\n", git_output.branches, current)

    async def remotes(self) -> bytes:
        said = await self._list("config", "--get-regexp", r"^remote\..*\.url$")
        if said.exit_code not in (0, 1):
            await self("rev-parse", "--git-dir")  # contains the reason
        return await self._answer(said, b"\n", git_output.remotes)

    async def _list(self, *words: str) -> GitResult:
        return await self.attempt(*words, limit=_MAX_LISTED)

    async def _answer(self, said: GitResult, end: bytes, shape: Callable[..., bytes], *more: str) -> bytes:
        if not said.whole:
            raise _too_much(f"Git prints more than {_MAX_LISTED} bytes.")
        self._inside.caller.holding.reserve(_COPIES_OF_LISTED * len(said.stdout))
        size = len(said.stdout) + _ENTRY_BYTES * said.stdout.count(end)
        try:
            return await self._inside.workers.call(size, shape, said.stdout, *more)
        except PayloadTooLarge as problem:
            raise _too_much(problem.message) from None


def whole_text(said: GitResult) -> str:
    if not said.whole:
        raise _too_much(f"Git prints more than {_MAX_OUTPUT} bytes.")
    return _text(said.stdout)


def _too_much(what: str) -> DaytonaError:
    text = f"{what} Run git as a command (POST /process/execute) and have it print less, or print to a file."
    return DaytonaError(413, text, "GIT_OUTPUT_TOO_LARGE", DAEMON)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _failed(said: str) -> DaytonaError:
    text = said.strip()[-2000:] or "git failed"
    for pattern, status, code in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return DaytonaError(status, text, code, DAEMON)
    if re.search(r"cannot change to .*no such file", text, re.IGNORECASE | re.DOTALL):
        return DaytonaError(404, text, "GIT_REPO_NOT_FOUND", DAEMON)
    return DaytonaError(400, text, "GIT_OPERATION_FAILED", DAEMON)
