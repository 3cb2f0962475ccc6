"""Faults on demand, around any provider: a step of it fails, hangs, is slow, lies, or takes the whole server down.

A step is the name of a method of Provider or Machine (``create``, ``spawn``, ``read_file``…). Rules are added in the
process, or kept in a JSON file that is read again whenever it changes, so that a test can steer a running server:
``{"rules": [{"step": "create", "kind": "crash_after", "times": 1}]}``. Each server process counts ``times`` for itself.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import inspect
import json
import os
import random
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from paddock import errors
from paddock.machine.base import Machine
from paddock.providers.base import Provider


class FaultKind(StrEnum):
    FAIL = "fail"
    """ProviderUnavailable, before anything was done."""
    REFUSE = "refuse"
    """ProviderRefused, before anything was done."""
    FAIL_AFTER = "fail_after"
    """It was done, and then ProviderUnavailable all the same."""
    HANG_BEFORE = "hang_before"
    HANG_AFTER = "hang_after"
    """Done, and never answered. Both end by cancellation, or as unavailable when the rules are cleared."""
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
        self._cleared = asyncio.Event()

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
        self._cleared.set()
        self._cleared = asyncio.Event()

    async def hang(self, step: str) -> None:
        await self._cleared.wait()
        raise errors.ProviderUnavailable(f"Injected fault: {step} hung until the faults were cleared.")

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

    def concern(self, step: str) -> bool:
        """Whether some rule may still strike at this step."""
        self._follow_file()
        return any(rule.step == step and rule.times != 0 for rule in self._rules)

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
    """A provider or a machine that is struck by faults, and the real one behind it."""

    inner: Any
    faults: Faults


Kind = TypeVar("Kind", bound=type)

_STREAMS = {"begin", "follow", "read_file"}
_CONTEXTS = {"watch"}
_SPAWNING = {"run", "begin"}
"""One call for several steps, of which ``spawn`` is the first: a rule about that strikes here, too."""


def _struck(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    steps = ("spawn", step) if step in _SPAWNING else (step,)
    if step in _STREAMS:
        return _struck_stream(step, steps)
    if step in _CONTEXTS:
        return _struck_context(step, steps)
    if inspect.iscoroutinefunction(method):
        return _struck_call(step, steps)
    return lambda self, *args, **kwargs: getattr(self.inner, step)(*args, **kwargs)


def _struck_call(name: str, steps: tuple[str, ...]) -> Callable[..., Any]:
    async def call(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        about = _about(self, args, kwargs)
        await _before(self.faults, steps, about)
        result = await getattr(self.inner, name)(*args, **kwargs)
        await _after(self.faults, steps, about)
        return _omitted(self.faults, name, about, result)

    return call


def _struck_stream(name: str, steps: tuple[str, ...]) -> Callable[..., Any]:
    async def stream(self: Faulty, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        about = _about(self, args, kwargs)
        await _before(self.faults, steps, about)
        items = getattr(self.inner, name)(*args, **kwargs)
        try:
            async for item in items:
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()
        await _after(self.faults, steps, about)

    return stream


def _struck_context(name: str, steps: tuple[str, ...]) -> Callable[..., Any]:
    def enter(self: Faulty, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        @asynccontextmanager
        async def context() -> AsyncIterator[Any]:
            about = _about(self, args, kwargs)
            await _before(self.faults, steps, about)
            async with getattr(self.inner, name)(*args, **kwargs) as value:
                yield value
            await _after(self.faults, steps, about)

        return context()

    return enter


def _about(self: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The sandbox that a call is about: the machine's own, or the first argument (an id, or a spec that has one)."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    for thing in (self, first):
        if isinstance(found := getattr(thing, "sandbox_id", None), str):
            return found
    return first if isinstance(first, str) else None


async def _before(faults: Faults, steps: Iterable[str], about: str | None) -> None:
    for step in steps:
        rule = faults.strike(step, about, lambda kind: kind not in _AFTER and kind is not FaultKind.OMIT)
        if rule is not None:
            await _strike_before(faults, rule, step)


async def _strike_before(faults: Faults, rule: FaultRule, step: str) -> None:
    match rule.kind:
        case FaultKind.FAIL:
            raise errors.ProviderUnavailable(f"Injected fault: {step} failed before it did anything.")
        case FaultKind.REFUSE:
            raise errors.ProviderRefused(f"Injected fault: {step} was refused.")
        case FaultKind.HANG_BEFORE:
            await faults.hang(step)
        case FaultKind.SLOW:
            await asyncio.sleep(rule.seconds)
        case FaultKind.CRASH_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)


async def _after(faults: Faults, steps: Iterable[str], about: str | None) -> None:
    for step in steps:
        rule = faults.strike(step, about, lambda kind: kind in _AFTER)
        if rule is not None:
            await _strike_after(faults, rule, step)


async def _strike_after(faults: Faults, rule: FaultRule, step: str) -> None:
    match rule.kind:
        case FaultKind.FAIL_AFTER:
            raise errors.ProviderUnavailable(f"Injected fault: {step} was done, and its answer was lost.")
        case FaultKind.HANG_AFTER:
            await faults.hang(step)
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


def _struck_like(base: type) -> Callable[[Kind], Kind]:
    """A class decorator: every public method of ``base`` goes on to ``inner``, and faults strike on the way."""

    def decorate(kind: Kind) -> Kind:
        for step, method in vars(base).items():
            if inspect.isfunction(method) and not step.startswith("_") and step not in vars(kind):
                setattr(kind, step, functools.wraps(method, updated=())(_struck(step, method)))
        abc.update_abstractmethods(kind)
        return kind

    return decorate


@_struck_like(Provider)
class FaultyProvider(Provider):
    """To be made by :func:`with_faults`."""

    def __init__(self, inner: Provider, faults: Faults) -> None:
        self.name = inner.name
        self.on_this_machine = inner.on_this_machine
        self.inner = inner
        self.faults = faults

    async def attach(self, sandbox_id: str) -> Machine:
        await _before(self.faults, ("attach",), sandbox_id)
        machine = await self.inner.attach(sandbox_id)
        await _after(self.faults, ("attach",), sandbox_id)
        return self._faulty(machine)

    def attached_machine(self, sandbox_id: str) -> Machine | None:
        """None while some rule is about ``attach``: the caller falls back to that, and is struck there."""
        machine = None if self.faults.concern("attach") else self.inner.attached_machine(sandbox_id)
        return None if machine is None else self._faulty(machine)

    def _faulty(self, machine: Machine) -> Machine:
        return FaultyMachine(machine, self.faults)  # type: ignore[abstract]


@_struck_like(Machine)
class FaultyMachine(Machine):
    """A machine of a provider with faults."""

    def __init__(self, inner: Machine, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults

    @property
    def sandbox_id(self) -> str:  # type: ignore[override]
        return self.inner.sandbox_id

    def __getattr__(self, name: str) -> Any:
        """What only this kind of machine can do, unstruck."""
        return getattr(self.inner, name)


def with_faults(provider: Provider, faults: Faults) -> FaultyProvider:
    """The same provider, with faults that strike as these rules say."""
    return FaultyProvider(provider, faults)  # type: ignore[abstract]
