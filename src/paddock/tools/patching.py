"""Patches, applied: every change is worked out before the first is made, and taken back if one cannot be."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from paddock import errors
from paddock.tools.bench import Bench
from paddock.tools.contents import Contents, load, save, turn
from paddock.tools.excerpt import once
from paddock.tools.patches import Act, Change, Hunk
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


async def apply(bench: Bench, changes: list[Change]) -> list[Step]:
    paths = {tidy(bench.path(name)) for change in changes for name in (change.path, change.moved_to) if name}
    async with AsyncExitStack() as turns:
        for path in sorted(paths):
            await turns.enter_async_context(turn(bench, path))
        steps: list[Step] = []
        for change in changes:
            step = await _plan(bench, change)
            if {step.path, step.target} & {path for other in steps for path in (other.path, other.target)}:
                raise ToolFailed(f"The patch changes {step.path} twice: put all of its hunks under one heading.")
            steps.append(step)
        await _make_all(bench, steps)
    return steps


async def _make_all(bench: Bench, steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        try:
            await _make(bench, step)
        except (errors.PaddockError, UnicodeEncodeError) as problem:
            for made in reversed(steps[:number]):
                await _take_back(bench, made)
            raise ToolFailed(f"{step.target}: {problem} Nothing was changed.") from None


async def _plan(bench: Bench, change: Change) -> Step:
    path = tidy(bench.path(change.path))
    target = tidy(bench.path(change.moved_to)) if change.moved_to else path
    count = {mark: sum(each == mark for hunk in change.hunks for each, _ in hunk.lines) for mark in "+-"}
    if change.act is Act.ADD or target != path:
        with suppress(errors.NotFound):
            await bench.machine.stat(target, user=bench.user)
            raise ToolFailed(f"{target} exists already. Update or delete it instead. Nothing was changed.")
    if change.act is Act.ADD:
        lines = [line for hunk in change.hunks for _, line in hunk.lines]
        ends = all(hunk.newline_at_end is not False for hunk in change.hunks)
        text = "\n".join(lines) + ("\n" if lines and ends else "")
        return Step(change.act, path, target, None, text, count["+"], 0)
    try:
        before = await load(bench, path)
    except errors.NotFound:
        raise ToolFailed(f"There is no file {path}. Nothing was changed.") from None
    if change.act is Act.DELETE:
        return Step(change.act, path, target, before, None, 0, before.text.count("\n"))
    return Step(change.act, path, target, before, patched(before, change.hunks, path), count["+"], count["-"])


def patched(before: Contents, hunks: list[Hunk], path: str) -> str:
    crlf = before.crlf
    text = before.text.replace("\r\n", "\n") if crlf else before.text
    ends = text.endswith("\n") or not text
    lines = text.removesuffix("\n").split("\n") if text else []
    out: list[str] = []
    at = 0
    for number, hunk in enumerate(hunks, 1):
        place = _find(lines, hunk, at)
        if place is None:
            wanted = "\n".join(hunk.old[:6]) or "\n".join(hunk.anchors)
            raise ToolFailed(
                f"Hunk {number} of {len(hunks)} does not fit {path}: these lines are not there (in this order):\n"
                f"{wanted}\nRead the file again and copy them exactly. Nothing was changed."
            )
        out += lines[at:place]
        at = place
        for mark, line in hunk.lines:
            if mark == "+":
                out.append(line)
            else:
                # What stays is taken from the file: the patch may differ in white space.
                out += [lines[at]] if mark == " " else []
                at += 1
        if hunk.newline_at_end is not None:
            ends = hunk.newline_at_end
    out += lines[at:]
    result = "\n".join(out) + ("\n" if out and ends else "")
    return result.replace("\n", "\r\n") if crlf else result


def _find(lines: list[str], hunk: Hunk, begin: int) -> int | None:
    """Where the old lines of a hunk are, at or after ``begin``: exactly; else but for white space."""
    for anchor in hunk.anchors:
        found = next((number for number in range(begin, len(lines)) if lines[number].strip() == anchor.strip()), None)
        if found is None:
            return None
        begin = found + 1
    old = hunk.old
    if not old:
        if hunk.at is not None:
            return max(begin, min(hunk.at, len(lines)))
        return begin if hunk.anchors else len(lines)
    for same in (str, str.rstrip, str.strip):
        wanted = [same(line) for line in old]
        given = [same(line) for line in lines]
        places = [at for at in range(begin, len(lines) - len(old) + 1) if given[at : at + len(old)] == wanted]
        if hunk.at_end:
            places = [at for at in places if at + len(old) == len(lines)] or places
        if places:
            near = hunk.at
            return places[0] if near is None else min(places, key=lambda at: abs(at + 1 - near))
    return None


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
