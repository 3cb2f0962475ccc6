"""Applies patches: all changes are computed before the first is made, and reverted if one fails."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from paddock import errors
from paddock.tools import patches
from paddock.tools.contents import Contents, load, save, turn
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once
from paddock.tools.hunks import patched
from paddock.tools.patches import PatchAction
from paddock.tools.reading import tidy
from paddock.tools.tool import ToolFailed


@dataclass(frozen=True, slots=True)
class Step:
    """The change of one file: its contents before and after."""

    act: PatchAction
    path: str
    target: str
    before: Contents | None
    text: str | None
    added: int
    removed: int


MAX_CHANGED_TEXT = 64 << 20
"""Maximum characters of all files together that one patch changes."""


@dataclass(frozen=True, slots=True)
class PatchHeader:
    """What a patch does to one file, without the lines."""

    act: PatchAction
    path: str
    moved_to: str | None
    added: int
    removed: int


def headings(patch: str) -> list[PatchHeader]:
    return [
        PatchHeader(change.act, change.path, change.moved_to, change.lines("+"), change.lines("-"))
        for change in patches.read(patch)
    ]


def texts(patch: str, before: list[tuple[str, bool] | None], names: list[str]) -> list[str | None]:
    """The new text of each file of the patch; None: deleted. ``before``: its old text, and whether it has CRLF."""
    found: list[str | None] = []
    for change, was, name in zip(patches.read(patch), before, names, strict=True):
        if change.act is PatchAction.ADD:
            lines = [line for hunk in change.hunks for _, line in hunk.lines]
            ends = all(hunk.newline_at_end is not False for hunk in change.hunks)
            found.append("\n".join(lines) + ("\n" if lines and ends else ""))
        elif change.act is PatchAction.DELETE or was is None:
            found.append(None)
        else:
            found.append(patched(was[0], was[1], change.hunks, name))
    return found


async def apply(ctx: ToolContext, patch: str) -> list[Step]:
    changes = await ctx.workers.call(len(patch), headings, patch)
    paths = {tidy(ctx.path(name)) for change in changes for name in (change.path, change.moved_to) if name}
    async with AsyncExitStack() as turns:
        for path in sorted(paths):
            await turns.enter_async_context(turn(ctx, path))
        steps = await _plan_all(ctx, patch, changes)
        await _make_all(ctx, steps)
    return steps


async def _plan_all(ctx: ToolContext, patch: str, changes: list[PatchHeader]) -> list[Step]:
    before: list[Contents | None] = []
    named: set[str] = set()
    size = 0
    for change in changes:
        path, target = _places(ctx, change)
        if {path, target} & named:
            raise ToolFailed(f"The patch changes {path} twice: put all of its hunks under one heading.")
        named |= {path, target}
        was = await _before(ctx, change, path, target)
        size += len(was.text) if was is not None else 0
        if size > MAX_CHANGED_TEXT:
            raise ToolFailed(f"The files are larger than {MAX_CHANGED_TEXT} characters together: patch some at a time.")
        before.append(was)
    was_text = [None if was is None else (was.text, was.crlf) for was in before]
    names = [_places(ctx, change)[0] for change in changes]
    after = await ctx.workers.call(size + len(patch), texts, patch, was_text, names)
    return [_step(ctx, *each) for each in zip(changes, before, after, strict=True)]


def _step(ctx: ToolContext, change: PatchHeader, before: Contents | None, text: str | None) -> Step:
    path, target = _places(ctx, change)
    removed = change.removed
    if change.act is PatchAction.DELETE and before is not None:
        removed = before.text.count("\n")
    return Step(change.act, path, target, before, text, change.added, removed)


def _places(ctx: ToolContext, change: PatchHeader) -> tuple[str, str]:
    path = tidy(ctx.path(change.path))
    return path, tidy(ctx.path(change.moved_to)) if change.moved_to else path


async def _before(ctx: ToolContext, change: PatchHeader, path: str, target: str) -> Contents | None:
    """The current contents; None for a file to be added. Raises if that file exists."""
    if change.act is PatchAction.ADD or target != path:
        with suppress(errors.NotFound):
            await ctx.machine.stat(target, user=ctx.user)
            raise ToolFailed(f"{target} exists already. Update or delete it instead. Nothing was changed.")
    if change.act is PatchAction.ADD:
        return None
    try:
        return await load(ctx, path)
    except errors.NotFound:
        raise ToolFailed(f"There is no file {path}. Nothing was changed.") from None


async def _make_all(ctx: ToolContext, steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        try:
            await _make(ctx, step)
        except (errors.PaddockError, UnicodeEncodeError) as problem:
            for made in reversed(steps[:number]):
                await _take_back(ctx, made)
            raise ToolFailed(f"{step.target}: {problem} Nothing was changed.") from None


async def _make(ctx: ToolContext, step: Step) -> None:
    machine = ctx.machine
    if step.text is None:
        await machine.remove(step.path, user=ctx.user)
    elif step.before is None:
        await machine.write_file(step.target, once(step.text.encode()), user=ctx.user)
    elif step.target == step.path:
        await save(ctx, step.path, step.before, step.text)
    else:
        mark = "\ufeff" if step.before.marked else ""
        data = (mark + step.text).encode()
        await machine.write_file(step.target, once(data), mode=step.before.info.mode, user=ctx.user)
        try:
            await machine.remove(step.path, user=ctx.user)
        except errors.PaddockError:
            await machine.remove(step.target, user=ctx.user)
            raise


async def _take_back(ctx: ToolContext, step: Step) -> None:
    """Revert a change as far as possible: whatever made the change fail may prevent this, too."""
    if step.before is None or step.target != step.path:
        with suppress(errors.PaddockError):
            await ctx.machine.remove(step.target, user=ctx.user)
    if step.before is not None:
        data = (("\ufeff" if step.before.marked else "") + step.before.text).encode()
        with suppress(errors.PaddockError):
            await ctx.machine.write_file(step.path, once(data), mode=step.before.info.mode, user=ctx.user)
