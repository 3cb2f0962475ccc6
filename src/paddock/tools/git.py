"""Runs git for tools: never prompts, explains what is missing, and hides passwords."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddock.tools import running
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed

_ENV = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "C",
}
_GITHUB = (
    "credential.https://github.com.helper="
    '!f() { test -n "$GITHUB_TOKEN" && echo username=x-access-token && echo "password=$GITHUB_TOKEN"; }; f'
)
"""Credential helper for GitHub that uses the sandbox's token, if it has one."""

_SEARCHED_CHARACTERS = 64 * 1024
"""Number of trailing characters of git's output that are searched for passwords; of these the last are shown."""
_SHOWN_CHARACTERS = 3000

_HINTS = (
    (r"not a git repository", "Give the path of a repository, clone one with git_clone, or run `git init`."),
    (
        r"prompts disabled|Authentication failed|could not read (Username|Password)|Permission denied \(publickey",
        "Git has no credentials for this: set GITHUB_TOKEN with env_set (for github.com), or configure a "
        "credential helper or an SSH key with run_command.",
    ),
    (
        r"Could not resolve|CONNECT tunnel failed|Failed to connect|Connection refused|unable to access",
        "The sandbox may not reach this host: its egress rules must allow it.",
    ),
    (
        r"Host key verification failed",
        "Add the host's key with run_command: `ssh-keyscan <host> >> ~/.ssh/known_hosts`.",
    ),
    (r"dubious ownership", "Run `git config --global --add safe.directory <path>` with run_command."),
    (r"tell me who you are|unable to auto-detect email|empty ident", "Give author_name and author_email."),
    (r"fetch first|non-fast-forward|Not possible to fast-forward|divergent", "Get what is new with git_pull (rebase)."),
    (r"has no upstream branch", "Set set_upstream."),
    (r"nothing to commit|no changes added", "Change something, and stage it with git_add, or set all."),
    (r"CONFLICT|conflict", "Resolve the conflicts in the files, then git_add them and commit."),
    (r"already exists and is not an empty", "Choose another path."),
)


async def git(
    ctx: ToolContext,
    repository: str,
    words: Sequence[str],
    *,
    settings: Sequence[str] = (),
    seconds: float = 60,
    fails: bool = True,
) -> running.ProgramResult:
    """Run one git command in a repository. Raises ``ToolFailed`` if it fails, unless ``fails`` is false."""
    every = (_GITHUB, "advice.detachedHead=false", "core.quotePath=false", *settings)
    argv = ["git", *(word for setting in every for word in ("-c", setting)), *words]
    ran = await running.run(ctx, argv, what=f"git {words[0]}", cwd=ctx.path(repository), env=_ENV, seconds=seconds)
    running.needs(ran, "git", "Install it (as root: `apt-get install git`), or use a template that has it.")
    if fails and not ran.ok:
        raise failed(words[0], ran)
    return ran


def failed(command: str, ran: running.ProgramResult) -> ToolFailed:
    said = last_words(ran.err, ran.out, _SHOWN_CHARACTERS)
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, said)), "")
    return ToolFailed(f"git {command} failed: {said or f'exit code {ran.info.exit_code}'}\n{hint}".rstrip())


def last_words(first: str, second: str, limit: int) -> str:
    """The end of the output on two streams, without passwords."""
    text = "\n".join(part for part in (first.strip(), second.strip()) if part)
    if len(text) > _SEARCHED_CHARACTERS:
        # Drop the rest of a word: its missing start could have shown that it contains a password.
        text = text[-_SEARCHED_CHARACTERS:]
        text = text[next((at for at, char in enumerate(text) if char.isspace()), len(text)) :]
    return masked(text)[-limit:].strip()


def masked(text: str) -> str:
    """Hide passwords in URLs."""
    # Matches from the slashes, which are rare, and not from every letter that might begin a scheme.
    return re.sub(r"(?<=\w)://[^/@\s]+@", "://***@", text)
