"""The client's methods for one sandbox: without the ``sandbox_id`` argument."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from paddock.client.call import ApiCall, ApiOperation, RunsAsync, RunsSync, StreamCall, StreamOperation
from paddock.client.calls import code, files, processes, sandboxes, tools

P = ParamSpec("P")
T = TypeVar("T")


class Within(Generic[P, T]):
    def __init__(self, build: Callable[Concatenate[str, P], ApiCall[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, session: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, session: RunsAsync, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, session: RunsSync, owner: type) -> Callable[P, T]: ...
    def __get__(self, session: Any, owner: type) -> Any:
        if _without_sandbox(session):
            return _once_open(self.build, session)
        return ApiOperation(_bound(self.build, session)).__get__(session, owner)


class StreamWithin(Generic[P, T]):
    def __init__(self, build: Callable[Concatenate[str, P], StreamCall[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, session: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, session: RunsAsync, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, session: RunsSync, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, session: Any, owner: type) -> Any:
        if _without_sandbox(session):
            return _stream_once_open(self.build, session)
        return StreamOperation(_bound(self.build, session)).__get__(session, owner)


def _without_sandbox(session: Any) -> bool:
    """True only for async sessions, whose first use creates the sandbox."""
    return session is not None and not session.is_open


def _once_open(build: Callable[..., ApiCall[T]], session: Any) -> Callable[..., Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def awaited(*args: Any, **kwargs: Any) -> T:
        await session.open()
        answer: T = await session._run(build(session.sandbox_id, *args, **kwargs))
        return answer

    return awaited


def _stream_once_open(build: Callable[..., StreamCall[T]], session: Any) -> Callable[..., AsyncIterator[T]]:
    @functools.wraps(build)
    async def streamed(*args: Any, **kwargs: Any) -> AsyncIterator[T]:
        await session.open()
        async with aclosing(session._stream(build(session.sandbox_id, *args, **kwargs))) as items:
            async for item in items:
                yield item

    return streamed


def _bound(build: Callable[..., Any], session: Any) -> Callable[..., Any]:
    if session is None:
        return build
    return functools.update_wrapper(functools.partial(build, session.sandbox_id), build)


class SessionOperations:
    """The documentation of each method is at its function in ``paddock.client.calls``."""

    run = Within(processes.run_command)
    run_command = Within(processes.run_command)
    stream_command = StreamWithin(processes.stream_command)
    run_code = Within(code.run_code)
    execute = Within(code.run_code)
    stream_code = StreamWithin(code.stream_code)
    call_tool = Within(tools.call_tool)

    write_file = Within(files.write_file)
    upload = Within(files.upload)
    read_file = Within(files.read_file)
    read_bytes = Within(files.read_bytes)
    download = StreamWithin(files.download)
    list_files = Within(files.list_files)
    stat_file = Within(files.stat_file)
    move_file = Within(files.move_file)
    make_directory = Within(files.make_directory)
    delete_file = Within(files.delete_file)
    watch_files = StreamWithin(files.watch_files)

    expose_port = Within(sandboxes.expose_port)
    get_preview_url = Within(sandboxes.expose_port)
    get_status = Within(sandboxes.get_status)
    schedule_timeout = Within(sandboxes.schedule_timeout)
    pause = Within(sandboxes.pause_sandbox)
    resume = Within(sandboxes.resume_sandbox)
    delete = Within(sandboxes.delete_sandbox)
