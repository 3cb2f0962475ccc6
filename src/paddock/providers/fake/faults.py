"""Faults on demand: a step of the provider fails, hangs, is slow, lies, or takes the whole server down.

A step is the name of a method of Provider or Machine (``create``, ``spawn``, ``read_file``…). Rules are added in the
process, or kept in a JSON file that is read again whenever it changes, so that a test can steer a running server:
``{"rules": [{"step": "create", "kind": "crash_after", "times": 1}]}``. Each server process counts ``times`` for itself.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from paddock import errors


class FaultKind(StrEnum):
    FAIL = "fail"
    """ProviderUnavailable, before anything was done."""
    REFUSE = "refuse"
    """ProviderRefused, before anything was done."""
    FAIL_AFTER = "fail_after"
    """It was done, and then ProviderUnavailable all the same."""
    HANG_BEFORE = "hang_before"
    HANG_AFTER = "hang_after"
    """Done, and never answered. Both end only by cancellation."""
    SLOW = "slow"
    """Wait ``seconds`` first."""
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    """SIGKILL to this very process."""
    OMIT = "omit"
    """A lie by omission: ``inspect`` says None, ``list`` leaves it out."""


_AFTER = {FaultKind.FAIL_AFTER, FaultKind.HANG_AFTER, FaultKind.CRASH_AFTER}


@dataclass(slots=True)
class FaultRule:
    step: str
    kind: FaultKind
    times: int | None = 1
    """How often it still strikes; None for ever."""
    seconds: float = 0
    probability: float = 1.0
    sandbox_id: str | None = None
    """Only for this sandbox; with OMIT on ``list``, only this one is left out."""


class Faults:
    """The rules in force. As a context manager it clears them at the end."""

    def __init__(self, rules: Iterable[FaultRule] = (), *, file: Path | None = None, seed: int | None = None) -> None:
        self._rules = list(rules)
        self._file = file
        self._read_at: int | None = None
        self._random = random.Random(seed)  # noqa: S311

    @classmethod
    def from_file(cls, path: Path) -> Faults:
        """Rules that follow this file; a missing file means none."""
        return cls(file=path)

    def add(
        self,
        step: str,
        kind: FaultKind,
        times: int | None = 1,
        seconds: float = 0,
        probability: float = 1.0,
        sandbox_id: str | None = None,
    ) -> Self:
        self._rules.append(FaultRule(step, kind, times, seconds, probability, sandbox_id))
        return self

    def clear(self) -> None:
        self._rules.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def strike(self, step: str, sandbox_id: str | None, when: Callable[[FaultKind], bool]) -> FaultRule | None:
        """The rule that hits this step now, counted; None when it goes through."""
        self._follow_file()
        for rule in self._rules:
            if rule.step != step or rule.times == 0 or not when(rule.kind):
                continue
            if rule.sandbox_id not in (None, sandbox_id) and step != "list":
                continue
            if rule.probability < 1 and self._random.random() >= rule.probability:
                continue
            if rule.times is not None:
                rule.times -= 1
            return rule
        return None

    def _follow_file(self) -> None:
        if self._file is None:
            return
        try:
            changed = self._file.stat().st_mtime_ns
            if changed == self._read_at:
                return
            found = json.loads(self._file.read_text() or "{}")
        except FileNotFoundError:
            changed, found = None, {}
        except json.JSONDecodeError:
            return  # half-written: the next look sees it whole
        if changed != self._read_at:
            self._read_at = changed
            self._rules = [FaultRule(**{**rule, "kind": FaultKind(rule["kind"])}) for rule in found.get("rules", ())]


class Faulty(Protocol):
    faults: Faults


Kind = TypeVar("Kind", bound=type)


def with_faults(*steps: str) -> Callable[[Kind], Kind]:
    """A class decorator that lets faults strike at these methods; their own code knows nothing of it."""

    def decorate(kind: Kind) -> Kind:
        for step in steps:
            setattr(kind, step, _struck(step, kind.__dict__[step]))
        return kind

    return decorate


def _struck(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):
        return _struck_call(step, method)
    if inspect.isasyncgenfunction(method):
        return _struck_stream(step, method)
    return _struck_context(step, method)


def _struck_call(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        about = _about(self, args, kwargs)
        await _before(self.faults, step, about)
        result = await method(self, *args, **kwargs)
        await _after(self.faults, step, about)
        return _omitted(self.faults, step, about, result)

    return call


def _struck_stream(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def stream(self: Faulty, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        about = _about(self, args, kwargs)
        await _before(self.faults, step, about)
        async for item in method(self, *args, **kwargs):
            yield item
        await _after(self.faults, step, about)

    return stream


def _struck_context(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def enter(self: Faulty, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        @asynccontextmanager
        async def context() -> AsyncIterator[Any]:
            about = _about(self, args, kwargs)
            await _before(self.faults, step, about)
            async with method(self, *args, **kwargs) as value:
                yield value
            await _after(self.faults, step, about)

        return context()

    return enter


def _about(self: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The sandbox that a call is about: the machine's own, or the first argument (an id, or a spec that has one)."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    for thing in (self, first):
        if isinstance(found := getattr(thing, "sandbox_id", None), str):
            return found
    return first if isinstance(first, str) else None


async def _before(faults: Faults, step: str, about: str | None) -> None:
    rule = faults.strike(step, about, lambda kind: kind not in _AFTER and kind is not FaultKind.OMIT)
    if rule is None:
        return
    match rule.kind:
        case FaultKind.FAIL:
            raise errors.ProviderUnavailable(f"Injected fault: {step} failed before it did anything.")
        case FaultKind.REFUSE:
            raise errors.ProviderRefused(f"Injected fault: {step} was refused.")
        case FaultKind.HANG_BEFORE:
            await asyncio.Event().wait()
        case FaultKind.SLOW:
            await asyncio.sleep(rule.seconds)
        case FaultKind.CRASH_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)


async def _after(faults: Faults, step: str, about: str | None) -> None:
    rule = faults.strike(step, about, lambda kind: kind in _AFTER)
    if rule is None:
        return
    match rule.kind:
        case FaultKind.FAIL_AFTER:
            raise errors.ProviderUnavailable(f"Injected fault: {step} was done, and its answer was lost.")
        case FaultKind.HANG_AFTER:
            await asyncio.Event().wait()
        case FaultKind.CRASH_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)


def _omitted(faults: Faults, step: str, about: str | None, result: Any) -> Any:
    if step not in ("inspect", "list"):
        return result
    rule = faults.strike(step, about, lambda kind: kind is FaultKind.OMIT)
    if rule is None:
        return result
    if step == "list":
        return [found for found in result if rule.sandbox_id not in (None, found.sandbox_id)]
    return None
