"""Patches, applied: every change is worked out before the first is made, and taken back if one cannot be."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from paddock import errors
from paddock.tools import patches
from paddock.tools.bench import Bench
from paddock.tools.contents import Contents, load, save, turn
from paddock.tools.excerpt import once
from paddock.tools.hunks import patched
from paddock.tools.patches import Act
from paddock.tools.reading import tidy
from paddock.tools.tool import ToolFailed


@dataclass(frozen=True, slots=True)
class Step:
    """One file: what it was, and what it becomes."""

    act: Act
    path: str
    target: str
    before: Contents | None
    text: str | None
    added: int
    removed: int


MAX_CHANGED_TEXT = 64 << 20
"""Characters of all files together that one patch changes."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What a patch says of one file, without its lines."""

    act: Act
    path: str
    moved_to: str | None
    added: int
    removed: int


def headings(patch: str) -> list[Heading]:
    return [
        Heading(change.act, change.path, change.moved_to, change.lines("+"), change.lines("-"))
        for change in patches.read(patch)
    ]


def texts(patch: str, before: list[tuple[str, bool] | None], names: list[str]) -> list[str | None]:
    """What each file of the patch becomes: None is a file no more. ``before``: its text, and whether it has CRLF."""
    found: list[str | None] = []
    for change, was, name in zip(patches.read(patch), before, names, strict=True):
        if change.act is Act.ADD:
            lines = [line for hunk in change.hunks for _, line in hunk.lines]
            ends = all(hunk.newline_at_end is not False for hunk in change.hunks)
            found.append("\n".join(lines) + ("\n" if lines and ends else ""))
        elif change.act is Act.DELETE or was is None:
            found.append(None)
        else:
            found.append(patched(was[0], was[1], change.hunks, name))
    return found


async def apply(bench: Bench, patch: str) -> list[Step]:
    changes = await bench.workers.call(len(patch), headings, patch)
    paths = {tidy(bench.path(name)) for change in changes for name in (change.path, change.moved_to) if name}
    async with AsyncExitStack() as turns:
        for path in sorted(paths):
            await turns.enter_async_context(turn(bench, path))
        steps = await _plan_all(bench, patch, changes)
        await _make_all(bench, steps)
    return steps


async def _plan_all(bench: Bench, patch: str, changes: list[Heading]) -> list[Step]:
    before: list[Contents | None] = []
    named: set[str] = set()
    size = 0
    for change in changes:
        path, target = _places(bench, change)
        if {path, target} & named:
            raise ToolFailed(f"The patch changes {path} twice: put all of its hunks under one heading.")
        named |= {path, target}
        was = await _before(bench, change, path, target)
        size += len(was.text) if was is not None else 0
        if size > MAX_CHANGED_TEXT:
            raise ToolFailed(f"The files are larger than {MAX_CHANGED_TEXT} characters together: patch some at a time.")
        before.append(was)
    was_text = [None if was is None else (was.text, was.crlf) for was in before]
    names = [_places(bench, change)[0] for change in changes]
    after = await bench.workers.call(size + len(patch), texts, patch, was_text, names)
    return [_step(bench, *each) for each in zip(changes, before, after, strict=True)]


def _step(bench: Bench, change: Heading, before: Contents | None, text: str | None) -> Step:
    path, target = _places(bench, change)
    removed = change.removed
    if change.act is Act.DELETE and before is not None:
        removed = before.text.count("\n")
    return Step(change.act, path, target, before, text, change.added, removed)


def _places(bench: Bench, change: Heading) -> tuple[str, str]:
    path = tidy(bench.path(change.path))
    return path, tidy(bench.path(change.moved_to)) if change.moved_to else path


async def _before(bench: Bench, change: Heading, path: str, target: str) -> Contents | None:
    """What is there now; None where nothing is, and nothing should be."""
    if change.act is Act.ADD or target != path:
        with suppress(errors.NotFound):
            await bench.machine.stat(target, user=bench.user)
            raise ToolFailed(f"{target} exists already. Update or delete it instead. Nothing was changed.")
    if change.act is Act.ADD:
        return None
    try:
        return await load(bench, path)
    except errors.NotFound:
        raise ToolFailed(f"There is no file {path}. Nothing was changed.") from None


async def _make_all(bench: Bench, steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        try:
            await _make(bench, step)
        except (errors.PaddockError, UnicodeEncodeError) as problem:
            for made in reversed(steps[:number]):
                await _take_back(bench, made)
            raise ToolFailed(f"{step.target}: {problem} Nothing was changed.") from None


async def _make(bench: Bench, step: Step) -> None:
    machine = bench.machine
    if step.text is None:
        await machine.remove(step.path, user=bench.user)
    elif step.before is None:
        await machine.write_file(step.target, once(step.text.encode()), user=bench.user)
    elif step.target == step.path:
        await save(bench, step.path, step.before, step.text)
    else:
        mark = "\ufeff" if step.before.marked else ""
        data = (mark + step.text).encode()
        await machine.write_file(step.target, once(data), mode=step.before.info.mode, user=bench.user)
        try:
            await machine.remove(step.path, user=bench.user)
        except errors.PaddockError:
            await machine.remove(step.target, user=bench.user)
            raise


async def _take_back(bench: Bench, step: Step) -> None:
    """As well as it goes: whatever stood in the way of the change may stand in the way of this."""
    if step.before is None or step.target != step.path:
        with suppress(errors.PaddockError):
            await bench.machine.remove(step.target, user=bench.user)
    if step.before is not None:
        data = (("\ufeff" if step.before.marked else "") + step.before.text).encode()
        with suppress(errors.PaddockError):
            await bench.machine.write_file(step.path, once(data), mode=step.before.info.mode, user=bench.user)
