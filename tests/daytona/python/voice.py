"""One voice for two SDKs: the asynchronous one is called like the blocking one, and every call is written down.

Coroutines are awaited on a loop in a thread of its own, asynchronous iterators become plain ones, and objects of the
SDK that have methods themselves are wrapped in turn.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

_SECONDS = 380


class Voice:
    """Where calls go, and the record of them."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.is_async = asynchronous
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        position = len(self.calls)
        self.calls.append((name, False))
        plain = [_plain(value) for value in args]
        answer = self.perform(partial(function, *plain, **{key: _plain(value) for key, value in kwargs.items()}))
        self.calls[position] = (name, True)
        return self.wrap(answer)

    def perform(self, act: Callable[[], Any]) -> Any:
        """Here, or on the loop; the blocking SDK has a few coroutines, too."""
        if self.is_async:
            return asyncio.run_coroutine_threadsafe(_finished(act), self._loop).result(_SECONDS)
        answer = act()
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer

    def wrap(self, value: Any) -> Any:
        if label(value):
            return Spoken(self, value)
        if isinstance(value, AsyncIterator):
            return self._iterate(value)
        if inspect.isgenerator(value):
            return map(self.wrap, value)
        return value

    def _iterate(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self.wrap(self.perform(values.__anext__))
            except StopAsyncIteration:
                return


class Spoken:
    """An object of the SDK, spoken to in one voice."""

    def __init__(self, voice: Voice, target: Any) -> None:
        self._voice = voice
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.isroutine(value):
            path = f"{label(self._target)}.{name}"
            return lambda *args, **kwargs: self._voice.call(path, value, args, kwargs)
        return self._voice.wrap(value)


def label(target: Any) -> str:
    """The name of its class, the same for both SDKs; empty for what only holds data."""
    cls = type(target)
    talks = cls.__module__.startswith(("daytona._sync", "daytona._async", "daytona.handle"))
    return cls.__name__.removeprefix("Async") if talks else ""


def _plain(value: Any) -> Any:
    return value._target if isinstance(value, Spoken) else value


async def _awaited(answer: Any) -> Any:
    return await answer


async def _finished(act: Callable[[], Any]) -> Any:
    answer = act()
    return await answer if inspect.isawaitable(answer) else answer
