"""The async session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar, Self, TypeVar, Unpack

from paddock.client.asynchronous import SandboxClient
from paddock.client.call import Call, StreamCall
from paddock.client.calls.tools import list_tools
from paddock.client.pair import ClientPair
from paddock.client.synchronous import SyncSandboxClient
from paddock.errors import SandboxGone, SandboxNotFound
from paddock.session.opening import USER, AtExit, SandboxOptions, named, open_session
from paddock.session.session import Session

T = TypeVar("T")


class SandboxSession(Session):
    """``async with await SandboxSession.create(session_id="chat_123") as session: …``"""

    provider: ClassVar[str | None] = None
    """Where its sandboxes are made, if that is not the server's choice."""

    @classmethod
    async def create(
        cls,
        session_id: str | None = None,
        user_id: str = USER,
        *,
        client: SandboxClient | SyncSandboxClient | None = None,
        server_url: str | None = None,
        api_key: str | None = None,
        at_exit: AtExit | str | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Self:
        """The session of this id with its sandbox: the one that it had, woken if it slept, or a new one.

        A session that is named is kept when it is closed, and found again by the same ``session_id`` and ``user_id``;
        one without a name is new and is deleted. ``at_exit`` (``keep``, ``pause``, ``delete``) says otherwise.
        """
        name, end = named(session_id, at_exit)
        if cls.provider is not None:
            options.setdefault("provider", cls.provider)
        clients = ClientPair(client, server_url=server_url, api_key=api_key)
        try:
            sandbox = await clients.run_async(open_session(name, user_id, options))
            catalogue = await clients.here()._run(list_tools(sandbox.sandbox_id))
        except BaseException:
            await clients.aclose()
            raise
        return cls(name, sandbox, catalogue, clients, end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Do with the sandbox as ``at_exit`` says, and let go of the connections."""
        try:
            if self.at_exit is AtExit.PAUSE:
                await self.pause()
            elif self.at_exit is AtExit.DELETE:
                await self.delete()
        except (SandboxNotFound, SandboxGone):
            pass  # somebody deleted it before us
        finally:
            await self.clients.aclose()

    async def _run(self, call: Call[T]) -> T:
        return await self.clients.here()._run(call)

    def _stream(self, call: StreamCall[T]) -> AsyncIterator[T]:
        return self.clients.here()._stream(call)
