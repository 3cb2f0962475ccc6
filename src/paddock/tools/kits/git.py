"""Git, with structured results."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock.tools.context import ToolContext
from paddock.tools.excerpt import excerpt
from paddock.tools.git import git, last_words, masked
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("git")

Repository = Annotated[str, Field(description="The repository.")]
Ref = Annotated[str, Field(pattern=r"^[^-\s][^\s]*$", max_length=250)]
"""A name that git cannot take for an option."""

_NETWORK_SECONDS = 1800.0
_SHOWN = 4000
_MAX_LISTED = 10_000
"""Files, changes or branches that one answer lists."""


class Cloned(BaseModel):
    path: str
    branch: str | None
    commit: str | None = Field(description="Null when the repository is empty.")


class Changed(BaseModel):
    path: str
    change: str = Field(description="A added, M modified, D deleted, R renamed, C copied, T of another type.")
    renamed_from: str | None = None


class Status(BaseModel):
    branch: str | None = Field(description="Null when no branch is checked out.")
    commit: str | None
    upstream: str | None
    ahead: int
    behind: int
    staged: list[Changed]
    unstaged: list[Changed]
    untracked: list[str]
    conflicted: list[str]
    clean: bool
    truncated: bool = Field(default=False, description="There are more changes than are listed.")


class DiffFile(BaseModel):
    path: str
    added: int | None = Field(description="Lines. Null for binary files.")
    removed: int | None


class Diff(BaseModel):
    files: list[DiffFile]
    diff: str
    diff_file: str | None = Field(description="File with the whole diff, if it was too long.")


class Added(BaseModel):
    staged: list[Changed]


class Committed(BaseModel):
    commit: str
    branch: str | None
    summary: str


class Output(BaseModel):
    output: str


class Branches(BaseModel):
    current: str | None
    branches: list[str]


class Commit(BaseModel):
    commit: str
    author: str
    email: str
    date: str
    subject: str


class Log(BaseModel):
    commits: list[Commit]


@kit.tool("git_clone", "Clone a repository", open_world=True)
async def git_clone(
    ctx: ToolContext,
    url: Annotated[str, Field(pattern=r"^[^-]", max_length=2000, description="https, ssh, or a path in the sandbox.")],
    path: Annotated[str | None, Field(description="Target directory. Null: its name, below /workspace.")] = None,
    branch: Annotated[Ref | None, Field(description="A branch or tag to check out.")] = None,
    depth: Annotated[int | None, Field(ge=1, description="Maximum commits of its history.")] = None,
) -> ToolReply[Cloned]:
    """Clone a git repository into the sandbox. For private ones on github.com, set GITHUB_TOKEN with env_set first."""
    name = re.sub(r"\.git$", "", url.rstrip("/").replace(":", "/").rsplit("/", 1)[-1]) or "repository"
    where = ctx.path(path or name)
    words = ["clone", "--progress", *(["--branch", branch] if branch else []), *([f"--depth={depth}"] if depth else [])]
    await git(ctx, ctx.workspace, [*words, "--", url, where], seconds=_NETWORK_SECONDS)
    branch_now, commit = await _head(ctx, where)
    at = f"{branch_now or 'detached'} at {commit[:9]}" if commit else "an empty repository"
    return ToolReply(f"Cloned {masked(url)} to {where} ({at}).", Cloned(path=where, branch=branch_now, commit=commit))


@kit.tool("git_status", "Git status", read_only=True, idempotent=True)
async def git_status(ctx: ToolContext, path: Repository = ".") -> ToolReply[Status]:
    """What has changed in a repository: staged, unstaged, untracked, in conflict; and where its branch stands."""
    status = await _status(ctx, path)
    lines = [f"On {status.branch or 'no branch'}" + (f", tracking {status.upstream}" if status.upstream else "")]
    if status.ahead or status.behind:
        lines.append(f"{status.ahead} ahead, {status.behind} behind")
    for title, changes in (("Staged", status.staged), ("Not staged", status.unstaged)):
        lines += [f"{title}:", *(f"  {each.change} {each.path}" for each in changes)] if changes else []
    for title, names in (("Untracked", status.untracked), ("In conflict", status.conflicted)):
        lines += [f"{title}:", *(f"  {name}" for name in names)] if names else []
    if status.truncated:
        lines.append("… and more; see `git status` with run_command.")
    if status.clean:
        lines.append("Nothing to commit.")
    cut = await excerpt(ctx, "\n".join(lines), "git-status")
    return ToolReply(cut.text, status)


@kit.tool("git_diff", "Git diff", read_only=True, idempotent=True)
async def git_diff(
    ctx: ToolContext,
    path: Repository = ".",
    staged: Annotated[bool, Field(description="Staged changes instead of unstaged.")] = False,
    ref: Annotated[Ref | None, Field(description="Compare with this commit, or A..B.", examples=["HEAD~1"])] = None,
    files: Annotated[list[str] | None, Field(description="Only these, relative to the repository.")] = None,
) -> ToolReply[Diff]:
    """The changes of a repository as a unified diff. Untracked files are not in it: see git_status."""
    words = [*(["--cached"] if staged else []), *([ref] if ref else []), "--", *(files or [])]
    numbers = await git(ctx, path, ["diff", "--numstat", "-z", "--no-renames", *words])
    listed = []
    for part in numbers.out.split("\0", _MAX_LISTED)[:_MAX_LISTED]:
        if found := re.fullmatch(r"(\d{1,12}|-)\t(\d{1,12}|-)\t(.+)", part, re.DOTALL):
            added, removed = (None if count == "-" else int(count) for count in (found[1], found[2]))
            listed.append(DiffFile(path=found[3], added=added, removed=removed))
    shown = await git(ctx, path, ["diff", "--no-color", "--no-ext-diff", *words])
    cut = await excerpt(ctx, shown.out, "git-diff")
    return ToolReply(cut.text or "No changes.", Diff(files=listed, diff=cut.text, diff_file=cut.file))


@kit.tool("git_add", "Stage changes", idempotent=True)
async def git_add(
    ctx: ToolContext,
    path: Repository = ".",
    files: Annotated[list[str] | None, Field(description="Relative to the repository. Null: everything.")] = None,
) -> ToolReply[Added]:
    """Stage changes for the next commit, deletions too."""
    await git(ctx, path, ["add", "--all", "--", *(files or ["."])])
    staged = (await _status(ctx, path)).staged
    lines = [f"{each.change} {each.path}" for each in staged]
    cut = await excerpt(ctx, "\n".join(["Staged:", *lines]) if lines else "Nothing is staged.", "git-add")
    return ToolReply(cut.text, Added(staged=staged))


@kit.tool("git_commit", "Commit")
async def git_commit(
    ctx: ToolContext,
    message: Annotated[str, Field(min_length=1, description="The message of the commit.")],
    path: Repository = ".",
    all: Annotated[bool, Field(description="Stage every change first, new files too.")] = False,
    author_name: Annotated[str | None, Field(description="If git has no identity configured.")] = None,
    author_email: Annotated[str | None, Field(description="Likewise.")] = None,
) -> ToolReply[Committed]:
    """Commit what is staged, or with all every change. Hooks of the repository run."""
    if all:
        await git(ctx, path, ["add", "--all", "--", "."])
    who = [f"user.name={author_name}"] if author_name else []
    who += [f"user.email={author_email}"] if author_email else []
    done = (await git(ctx, path, ["commit", "--message", message], settings=who, seconds=600)).out
    branch, commit = await _head(ctx, path)
    if commit is None:
        raise ToolFailed("git made no commit.")
    summary = done.strip()[:4000]
    return ToolReply(summary, Committed(commit=commit, branch=branch, summary=summary))


@kit.tool("git_push", "Push", destructive=True, open_world=True)
async def git_push(
    ctx: ToolContext,
    path: Repository = ".",
    remote: Annotated[Ref, Field(description="The name of the remote.")] = "origin",
    branch: Annotated[Ref | None, Field(description="Null: the one that is checked out.")] = None,
    set_upstream: Annotated[bool, Field(description="Set it as upstream.")] = True,
    force: Annotated[bool, Field(description="Overwrite (--force-with-lease).")] = False,
) -> ToolReply[Output]:
    """Push commits to a remote. Needs credentials that git can find: GITHUB_TOKEN for github.com (see env_set)."""
    words = ["push", "--porcelain", *(["--set-upstream"] if set_upstream else [])]
    words += ["--force-with-lease"] if force else []
    ran = await git(ctx, path, [*words, remote, branch or "HEAD"], seconds=_NETWORK_SECONDS)
    said = last_words(ran.out, ran.err, _SHOWN)
    return ToolReply(said or "Pushed.", Output(output=said))


@kit.tool("git_pull", "Pull", open_world=True)
async def git_pull(
    ctx: ToolContext,
    path: Repository = ".",
    rebase: Annotated[bool, Field(description="Rebase instead of fast-forward only.")] = False,
) -> ToolReply[Output]:
    """Get what is new on the remote into the branch that is checked out."""
    words = ["pull", "--rebase" if rebase else "--ff-only"]
    ran = await git(ctx, path, words, seconds=_NETWORK_SECONDS)
    said = last_words(ran.out, ran.err, _SHOWN)
    return ToolReply(said or "Up to date.", Output(output=said))


@kit.tool("git_branch", "Branches", destructive=True)
async def git_branch(
    ctx: ToolContext,
    path: Repository = ".",
    action: Annotated[
        Literal["list", "create", "switch", "delete"], Field(description="create also switches to it.")
    ] = "list",
    name: Annotated[Ref | None, Field(description="Of the branch. Not for list.")] = None,
    start: Annotated[Ref | None, Field(description="Start of a new branch. Null: HEAD.")] = None,
) -> ToolReply[Branches]:
    """List branches; create one, switch to one, or delete one that is merged."""
    if action != "list":
        if name is None:
            raise ToolFailed(f"Give the name of the branch to {action}.")
        words = {
            "create": ["switch", "--create", name, *([start] if start else [])],
            "switch": ["switch", name],
            "delete": ["branch", "--delete", name],
        }[action]
        await git(ctx, path, words)
    ran = await git(ctx, path, ["branch", "--all", "--format=%(refname:short)"])
    names = [line for line in ran.out.split("\n", _MAX_LISTED)[:_MAX_LISTED] if line and not line.startswith("(")]
    current, _ = await _head(ctx, path)
    lines = [f"{'*' if each == current else ' '} {each}" for each in names]
    return ToolReply("\n".join(lines) or f"* {current} (no commits yet)", Branches(current=current, branches=names))


@kit.tool("git_log", "Git log", read_only=True, idempotent=True)
async def git_log(
    ctx: ToolContext,
    path: Repository = ".",
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number.")] = 20,
    ref: Annotated[Ref | None, Field(description="Start commit, or A..B.")] = None,
    file: Annotated[str | None, Field(description="Only commits that changed this.")] = None,
) -> ToolReply[Log]:
    """The latest commits, newest first."""
    form = "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%s%x1e"
    ran = await git(ctx, path, ["log", form, f"--max-count={limit}", *([ref] if ref else []), "--", *_list(file)])
    commits = []
    for record in ran.out.split("\x1e"):
        parts = record.strip("\n").split("\x1f")
        if len(parts) == 5:
            commits.append(Commit(commit=parts[0], author=parts[1], email=parts[2], date=parts[3], subject=parts[4]))
    lines = [f"{each.commit[:9]} {each.date[:10]} {each.author}: {each.subject}" for each in commits]
    cut = await excerpt(ctx, "\n".join(lines), "git-log")
    return ToolReply(cut.text or "No commits.", Log(commits=commits))


def _list(value: str | None) -> list[str]:
    return [] if value is None else [value]


async def _head(ctx: ToolContext, path: str) -> tuple[str | None, str | None]:
    branch = await git(ctx, path, ["symbolic-ref", "--quiet", "--short", "HEAD"], fails=False)
    commit = await git(ctx, path, ["rev-parse", "--quiet", "--verify", "HEAD"], fails=False)
    return branch.out.strip() or None, commit.out.strip() or None


async def _status(ctx: ToolContext, path: str) -> Status:
    ran = await git(ctx, path, ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"])
    found = Status(
        branch=None, commit=None, upstream=None, ahead=0, behind=0, staged=[], unstaged=[], untracked=[],
        conflicted=[], clean=True,
    )  # fmt: skip
    records = ran.out.split("\0", _MAX_LISTED)
    parts = iter(records[:_MAX_LISTED])
    for part in parts:
        kind = part[:1]
        if part.startswith("# branch."):
            _read_branch(found, part.removeprefix("# branch."))
        elif kind in ("1", "2"):
            fields = part.split(" ", 8 if kind == "1" else 9)
            before = next(parts, None) if kind == "2" else None
            for mark, changes in zip(fields[1], (found.staged, found.unstaged), strict=True):
                if mark != ".":
                    changes.append(Changed(path=fields[-1], change=mark, renamed_from=before))
        elif kind == "u":
            found.conflicted.append(part.split(" ", 10)[-1])
        elif kind == "?":
            found.untracked.append(part[2:])
    found.truncated = len(records) > _MAX_LISTED
    found.clean = not (found.staged or found.unstaged or found.untracked or found.conflicted)
    return found


def _read_branch(found: Status, said: str) -> None:
    name, _, value = said.partition(" ")
    match name:
        case "oid":
            found.commit = None if value == "(initial)" else value
        case "head":
            found.branch = None if value == "(detached)" else value
        case "upstream":
            found.upstream = value
        case "ab":
            ahead, behind = value.split()
            found.ahead, found.behind = int(ahead), -int(behind)
