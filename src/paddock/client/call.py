"""A call as a value: one request, and how to read its answer.

Each method of the clients is a function in :mod:`paddock.client.calls` that builds a call; :class:`ApiOperation` and
:class:`StreamOperation` turn that function into a method, a coroutine on one client and a plain method on the other. So
both forms have one implementation and one signature.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, ParamSpec, Protocol, TypeVar, overload

import httpx
from pydantic import BaseModel

from paddock.client.errors import UnexpectedAnswer
from paddock.client.retry import Repeat
from paddock.errors import PaddockError
from paddock.models import SandboxInfo

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)

Body = bytes | Path | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""Types of request bodies. Only bytes and paths can be sent again after a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[T]):
    method: str
    path: str
    read: Callable[[httpx.Response], T]
    json: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    repeat: Repeat = Repeat.SAFE
    also: frozenset[int] = frozenset()
    """Statuses besides 2xx that are answers, not errors."""
    server_wait: float = 0.0
    """Seconds that the server may take by request; the client's timeout is longer than that."""


class Decoder(Protocol[T_co]):
    """Decodes a streamed body into items."""

    def feed(self, chunk: bytes) -> Iterable[T_co]: ...

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""

    def resume(self) -> StreamCall[T_co] | None:
        """The call that continues where this one was interrupted, if possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall(Generic[T_co]):
    call: ApiCall[None]
    decoder: Callable[[], Decoder[T_co]]


class RunsAsync(Protocol):
    async def _run(self, call: ApiCall[T]) -> T: ...

    def _stream(self, call: StreamCall[T]) -> AsyncIterator[T]: ...


class RunsSync(Protocol):
    def _run(self, call: ApiCall[T]) -> T: ...

    def _stream(self, call: StreamCall[T]) -> Iterator[T]: ...


class ApiOperation(Generic[P, T]):
    """A client method that makes one call and returns its answer."""

    def __init__(self, build: Callable[P, ApiCall[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: RunsAsync, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: RunsSync, owner: type) -> Callable[P, T]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return _method(self.build, client, "_run")


class StreamOperation(Generic[P, T]):
    """A client method that returns an iterator over streamed items."""

    def __init__(self, build: Callable[P, StreamCall[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: RunsAsync, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: RunsSync, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return _method(self.build, client, "_stream")


def _method(build: Callable[..., Any], client: Any, run: str) -> Callable[..., Any]:
    if client is None:
        return build
    run_steps = getattr(client, run)
    if inspect.iscoroutinefunction(run_steps):

        @functools.wraps(build)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await run_steps(build(*map(by_id, args), **{name: by_id(each) for name, each in kwargs.items()}))

        return awaited

    @functools.wraps(build)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return run_steps(build(*map(by_id, args), **{name: by_id(each) for name, each in kwargs.items()}))

    return plain


def by_id(argument: Any) -> Any:
    """Also accepts a sandbox object in place of its id, because clients of older servers returned the id from
    ``create_sandbox``."""
    return argument.sandbox_id if isinstance(argument, SandboxInfo) else argument


# Ways to read an answer


def answer(model: type[M]) -> Callable[[httpx.Response], M]:
    """Read the body as this model."""

    def read(response: httpx.Response) -> M:
        try:
            return model.model_validate_json(response.content)
        except ValueError as error:
            raise _unexpected(response, model) from error

    return read


def listed(model: type[M], name: str) -> Callable[[httpx.Response], list[M]]:
    """Read the list of this name in the body, with each item as this model."""

    def read(response: httpx.Response) -> list[M]:
        try:
            return [model.model_validate(item) for item in response.json()[name]]
        except (ValueError, TypeError, LookupError) as error:
            raise _unexpected(response, model) from error

    return read


def event(model: type[M], data: str) -> M:
    """Read the data of an event as this model."""
    try:
        return model.model_validate_json(data)
    except ValueError as error:
        raise UnexpectedAnswer(f"The stream contains something else than {model.__name__}: {data[:200]}") from error


def nothing(response: httpx.Response) -> None:
    return None


def _unexpected(response: httpx.Response, model: type[BaseModel]) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{response.url} answered with something else than {model.__name__}. "
        "Is it a Paddock server, and of this version?"
    )


def given(**fields: Any) -> dict[str, Any]:
    """Only the arguments that the caller gave. The server has the defaults of the others."""
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if value is not None
    }


# Operations of several calls

Steps = Generator[ApiCall[Any], Any, T]
"""A generator that yields calls and receives their answers, run by either client, so that both forms share one
implementation. A failed call raises its error at the ``yield``."""


def ask(call: ApiCall[T]) -> Steps[T]:
    """One call with a typed answer: ``box = yield from ask(get_status(sandbox_id))``."""
    answer: T = yield call
    return answer


def run_steps(client: RunsSync, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            call = steps.throw(answer) if isinstance(answer, PaddockError) else steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answer = client._run(call)
        except PaddockError as error:
            answer = error


async def run_steps_async(client: RunsAsync, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            call = steps.throw(answer) if isinstance(answer, PaddockError) else steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answer = await client._run(call)
        except PaddockError as error:
            answer = error
