"""The async session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from paddock.client.call import ApiCall, StreamCall
from paddock.client.calls.tools import list_tools
from paddock.errors import Conflict, Invalid, SandboxGone, SandboxNotFound
from paddock.session.opening import USER, OptionsWithoutTimeout, SandboxOptions, SessionOptions, open_session
from paddock.session.session import Session

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S", bound="SandboxSession")
T = TypeVar("T")
_IMAGE = "image:"
"""Prefix of a template that names an image. The server passes it to the provider in the provider's form."""


class _Create(Generic[P, Q]):
    """``create`` called on the class opens a session; called on an object it creates that session's sandbox."""

    def __init__(
        self,
        session: Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]],
        sandbox: Callable[Concatenate[Any, Q], Coroutine[Any, Any, str]],
    ) -> None:
        self._session = session
        self._sandbox = sandbox

    @overload
    def __get__(self, made: None, kind: type[S]) -> Callable[P, Coroutine[Any, Any, S]]: ...
    @overload
    def __get__(self, made: SandboxSession, kind: type[S]) -> Callable[Q, Coroutine[Any, Any, str]]: ...
    def __get__(self, made: Any, kind: Any) -> Any:
        return MethodType(self._session, kind) if made is None else MethodType(self._sandbox, made)


async def _open_session(
    kind: type[SandboxSession],
    /,
    session_id: str | None = None,
    user_id: str = USER,
    **options: Unpack[SessionOptions],
) -> SandboxSession:
    """Open the session with this id: finds its sandbox and resumes it if necessary, or creates one.

    A session with an id keeps its sandbox when it is closed, and is found again by ``session_id`` and ``user_id``; one
    without an id is new, and its sandbox is deleted. ``at_exit`` (``keep``, ``pause``, ``delete``) overrides that.
    """
    session = kind(session_id, user_id, **options)
    try:
        return await session.open()
    except BaseException:
        await session.clients.aclose()
        raise


async def _create_sandbox(
    session: SandboxSession,
    /,
    template: str | None = None,
    timeout: int | None = None,
    *,
    image: str | None = None,
    **given: Unpack[OptionsWithoutTimeout],
) -> str:
    """Create this session's sandbox and return its id. ``image`` is a template given as the name of an image."""
    names = {name for name in (template, image, given.get("template_id")) if name is not None}
    if len(names) > 1:
        raise Invalid(f"Give one of template and image; these are {' and '.join(map(repr, sorted(names)))}.")
    options = cast("SandboxOptions", given)
    if names:
        options["template_id"] = names.pop() if image is None else f"{_IMAGE}{image.removeprefix(_IMAGE)}"
    if timeout is not None:
        options["timeout"] = timeout
    if session.is_open:
        raise Conflict(f"This has a sandbox already, {session.sandbox_id}. Make another object for another sandbox.")
    await session.open(**options)
    return session.sandbox_id


class SandboxSession(Session):
    """``async with await SandboxSession.create(session_id="chat_123") as session: …``"""

    def __init__(self, session_id: str | None = None, user_id: str = USER, **options: Unpack[SessionOptions]) -> None:
        """Has no sandbox yet: ``create`` of this object or the first use creates it."""
        super().__init__(session_id, user_id, **options)
        self._opening = asyncio.Lock()

    create = _Create(_open_session, _create_sandbox)

    async def open(self, **options: Unpack[SandboxOptions]) -> Self:
        """Create or find the sandbox, if that has not been done."""
        async with self._opening:
            if self._opened is None:
                self._options.update(options)
                sandbox = await self.clients.run_async(open_session(self.session_id, self.user_id, self._options))
                self._opened = sandbox, await self.clients.here()._run(list_tools(sandbox.sandbox_id))
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Apply ``at_exit`` to the sandbox, and close the connections."""
        try:
            if (end := self._ending()) is not None:
                await self._run(end)
        except (SandboxNotFound, SandboxGone):
            pass  # it was deleted by somebody else
        finally:
            await self.clients.aclose()

    async def _run(self, call: ApiCall[T]) -> T:
        return await self.clients.here()._run(call)

    def _stream(self, call: StreamCall[T]) -> AsyncIterator[T]:
        return self.clients.here()._stream(call)


class LocalSandbox(SandboxSession):
    provider: ClassVar[str | None] = "local"


class DockerSandbox(SandboxSession):
    provider: ClassVar[str | None] = "docker"


class KubernetesSandbox(SandboxSession):
    provider: ClassVar[str | None] = "kubernetes"


class E2BSandbox(SandboxSession):
    provider: ClassVar[str | None] = "e2b"


class DaytonaSandbox(SandboxSession):
    provider: ClassVar[str | None] = "daytona"


async def create_sandbox(
    *, session_id: str | None = None, user_id: str = USER, **options: Unpack[SessionOptions]
) -> SandboxSession:
    """A session in a sandbox of this ``provider``, by default the one named by the server's settings.

    With a ``session_id`` it is opened with the sandbox of that session. Without one, its ``create`` or its first use
    creates a sandbox: ``sandbox_id = await sandbox.create(template="debian", timeout=3600)``.
    """
    kinds: tuple[type[SandboxSession], ...] = (
        LocalSandbox,
        DockerSandbox,
        KubernetesSandbox,
        E2BSandbox,
        DaytonaSandbox,
    )
    kind = {each.provider: each for each in kinds}.get(options.get("provider"), SandboxSession)
    if session_id is None:
        return kind(None, user_id, **options)
    return await kind.create(session_id, user_id, **options)
