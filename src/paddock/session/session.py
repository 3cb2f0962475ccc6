"""What sync and async sessions share: a sandbox, its tools, and the connection to the server."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from paddock.client.answers import Sandbox, ToolInfo
from paddock.client.call import ApiCall, ApiOperation, RunsAsync, RunsSync, StreamCall, StreamOperation
from paddock.client.calls import code, files, processes, sandboxes, tools
from paddock.client.pair import ClientPair
from paddock.errors import Conflict, Unsupported
from paddock.session.opening import USER, AtExit, SandboxOptions, SessionOptions, named

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

P = ParamSpec("P")
T = TypeVar("T")


class SandboxMethod(Generic[P, T]):
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


class SandboxStreamMethod(Generic[P, T]):
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

    run = SandboxMethod(processes.run_command)
    run_command = SandboxMethod(processes.run_command)
    stream_command = SandboxStreamMethod(processes.stream_command)
    run_code = SandboxMethod(code.run_code)
    execute = SandboxMethod(code.run_code)
    stream_code = SandboxStreamMethod(code.stream_code)
    call_tool = SandboxMethod(tools.call_tool)

    write_file = SandboxMethod(files.write_file)
    upload = SandboxMethod(files.upload)
    read_file = SandboxMethod(files.read_file)
    read_bytes = SandboxMethod(files.read_bytes)
    download = SandboxStreamMethod(files.download)
    list_files = SandboxMethod(files.list_files)
    stat_file = SandboxMethod(files.stat_file)
    move_file = SandboxMethod(files.move_file)
    make_directory = SandboxMethod(files.make_directory)
    delete_file = SandboxMethod(files.delete_file)
    watch_files = SandboxStreamMethod(files.watch_files)

    expose_port = SandboxMethod(sandboxes.expose_port)
    get_preview_url = SandboxMethod(sandboxes.expose_port)
    get_status = SandboxMethod(sandboxes.get_status)
    schedule_timeout = SandboxMethod(sandboxes.schedule_timeout)
    pause = SandboxMethod(sandboxes.pause_sandbox)
    resume = SandboxMethod(sandboxes.resume_sandbox)
    delete = SandboxMethod(sandboxes.delete_sandbox)


class Session(SessionOperations):
    provider: ClassVar[str | None] = None
    """Provider of the sandboxes; None: the server's default."""

    def __init__(self, session_id: str | None = None, user_id: str = USER, **options: Unpack[SessionOptions]) -> None:
        self.session_id, self.at_exit = named(session_id, options.pop("at_exit", None))
        self.user_id = user_id
        self.clients = ClientPair(
            options.pop("client", None),
            server_url=options.pop("server_url", None),
            api_key=options.pop("api_key", None),
        )
        if self.provider is not None:
            options.setdefault("provider", self.provider)
        self._options = cast("SandboxOptions", options)
        self._opened: tuple[Sandbox, list[ToolInfo]] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has its sandbox."""
        return self._opened is not None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox's state when the session was opened; ``get_status`` returns the current one."""
        return self._here()[0]

    @property
    def catalogue(self) -> list[ToolInfo]:
        return self._here()[1]

    @property
    def sandbox_id(self) -> str:
        return self.sandbox.sandbox_id

    def get_tools(
        self,
        names: Iterable[str] | None = None,
        *,
        kits: Iterable[str] | None = None,
        read_only: bool | None = None,
    ) -> list[BaseTool]:
        """LangChain tools that act in this sandbox, callable from coroutines and plain code.

        All of them, or a selection: by name (MCP's or LangChain's), by kit, or only those that change nothing.
        """
        try:
            from paddock.langchain import make_tools
        except ImportError as missing:
            raise Unsupported("LangChain's tools need its package: pip install 'langchain-core>=1'.") from missing
        return make_tools(self.catalogue, self.sandbox_id, self.clients, names=names, kits=kits, read_only=read_only)

    def _ending(self) -> ApiCall[Any] | None:
        """The call that ``at_exit`` requires."""
        if not self.is_open or self.at_exit is AtExit.KEEP:
            return None
        end = sandboxes.pause_sandbox if self.at_exit is AtExit.PAUSE else sandboxes.delete_sandbox
        return end(self.sandbox_id)

    def _here(self) -> tuple[Sandbox, list[ToolInfo]]:
        if self._opened is None:
            raise Conflict("This has no sandbox yet: call `await sandbox.create()` first.")
        return self._opened

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.session_id!r} {f'in {self.sandbox_id}' if self._opened else 'not open'}>"
