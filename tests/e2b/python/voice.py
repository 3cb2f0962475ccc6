"""One voice for two SDKs: the asynchronous one is called like the blocking one, and every call is written down.

``speak(Sandbox)`` gives an object that behaves as the class does. Coroutines are awaited on a loop in a thread of its
own, asynchronous iterators become plain ones, and objects that have methods themselves are wrapped in turn. A method or
a parameter that an older SDK does not have skips the test; the newest must have all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

_SECONDS = 250
_TALKERS = {
    "CommandHandle",
    "CommandInputHandle",
    "Commands",
    "Filesystem",
    "Git",
    "Pty",
    "Sandbox",
    "SandboxPaginator",
    "SecretPaginator",
    "SnapshotPaginator",
    "Volume",
    "WatchHandle",
}


class Voice:
    """Where calls go, and the record of them."""

    def __init__(self, *, asynchronous: bool, newest: bool) -> None:
        self.calls: list[tuple[str, bool]] = []
        self._kept: list[Any] = []
        self._newest = newest
        self._loop = asyncio.new_event_loop() if asynchronous else None
        if self._loop is not None:
            threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def speak(self, target: Any) -> Any:
        return Spoken(self, target)

    def call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        args = [_plain(value) for value in args]
        self._demand(name, function, args, kwargs)
        position = len(self.calls)
        self.calls.append((name, False))
        try:
            answer = self.perform(partial(function, *args, **{key: _plain(value) for key, value in kwargs.items()}))
        except TypeError as error:
            raise self._unknown(name, error) from error
        self.calls[position] = (name, True)
        return self.wrap(answer)

    def perform(self, act: Callable[[], Any]) -> Any:
        """Here, or on the loop: some plain functions of the asynchronous SDK start tasks."""
        if self._loop is None:
            return act()
        return asyncio.run_coroutine_threadsafe(_finished(act), self._loop).result(_SECONDS)

    def wrap(self, value: Any) -> Any:
        if label(value) in _TALKERS:
            # Kept, because the transport of older versions locks itself up when the collector of garbage closes a
            # stream in the middle of another request.
            self._kept.append(value)
            return self.speak(value)
        if isinstance(value, AsyncIterator):
            return self._iterate(value)
        return value

    def missing(self, what: str) -> Exception:
        """Raised for what this SDK does not have."""
        if self._newest:
            return AttributeError(f"the newest SDK has no {what}")
        pytest.skip(f"this version has no {what}")

    def _demand(self, name: str, function: Callable[..., Any], args: list[Any], kwargs: Any) -> None:
        # Partly, because methods that also work on the class show the signature of the one on the object.
        try:
            inspect.signature(function).bind_partial(*args, **kwargs)
        except TypeError as error:
            raise self._unknown(name, error) from error

    def _unknown(self, name: str, error: TypeError) -> Exception:
        """A keyword that this version does not know, which some methods find out only when they pass it on."""
        return self.missing(f"{name} with that: {error}") if "unexpected keyword" in str(error) else error

    def _iterate(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self.perform(values.__anext__)
            except StopAsyncIteration:
                return


class Spoken:
    """A class or an object of the SDK, spoken to in one voice."""

    def __init__(self, voice: Voice, target: Any) -> None:
        self._voice = voice
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._target, name):
            raise self._voice.missing(f"{label(self._target)}.{name}")
        value = getattr(self._target, name)
        if inspect.isroutine(value):
            path = f"{label(self._target)}.{name}"
            return lambda *args, **kwargs: self._voice.call(path, value, args, kwargs)
        return self._voice.wrap(value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._voice.wrap(self._target(*args, **kwargs))

    def __enter__(self) -> Any:
        enter = getattr(self._target, "__aenter__", None) or self._target.__enter__
        self._voice.perform(enter)
        return self

    def __exit__(self, *words: Any) -> None:
        leave = getattr(self._target, "__aexit__", None) or self._target.__exit__
        self._voice.perform(partial(leave, *words))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._target)


def label(target: Any) -> str:
    """The name of its class, the same for both SDKs."""
    cls = target if inspect.isclass(target) else type(target)
    return cls.__name__.removeprefix("Async") if cls.__module__.startswith("e2b") else ""


def _plain(value: Any) -> Any:
    return value._target if isinstance(value, Spoken) else value


async def _finished(act: Callable[[], Any]) -> Any:
    answer = act()
    return await answer if inspect.isawaitable(answer) else answer
