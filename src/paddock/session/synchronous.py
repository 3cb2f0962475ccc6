"""The sync session: the same methods as the async session, without ``await``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self, TypeVar, Unpack

from paddock.client.asynchronous import SandboxClient
from paddock.client.call import ApiCall, StreamCall
from paddock.client.calls.tools import list_tools
from paddock.client.pair import ClientPair
from paddock.client.synchronous import SyncSandboxClient
from paddock.errors import SandboxGone, SandboxNotFound
from paddock.session.opening import USER, AtExit, SandboxOptions, named, open_session
from paddock.session.session import Session

T = TypeVar("T")


class SyncSandboxSession(Session):
    """``with SyncSandboxSession.create(session_id="chat_123") as session: …``"""

    provider: ClassVar[str | None] = None

    @classmethod
    def create(
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
        """Open the session with this id: finds its sandbox and resumes it if necessary, or creates one.

        A session with an id keeps its sandbox when it is closed, and is found again by ``session_id`` and ``user_id``;
        one without an id is new, and its sandbox is deleted. ``at_exit`` (``keep``, ``pause``, ``delete``) overrides
        that.
        """
        name, end = named(session_id, at_exit)
        if cls.provider is not None:
            options.setdefault("provider", cls.provider)
        clients = ClientPair(client, server_url=server_url, api_key=api_key)
        try:
            sandbox = clients.run(open_session(name, user_id, options))
            catalogue = clients.plain()._run(list_tools(sandbox.sandbox_id))
        except BaseException:
            clients.close()
            raise
        session = cls(name, user_id, clients, end, options)
        session._opened = sandbox, catalogue
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Apply ``at_exit`` to the sandbox, and close the connections."""
        try:
            if self.at_exit is AtExit.PAUSE:
                self.pause()
            elif self.at_exit is AtExit.DELETE:
                self.delete()
        except (SandboxNotFound, SandboxGone):
            pass  # it was deleted by somebody else
        finally:
            self.clients.close()

    def _run(self, call: ApiCall[T]) -> T:
        return self.clients.plain()._run(call)

    def _stream(self, call: StreamCall[T]) -> Iterator[T]:
        return self.clients.plain()._stream(call)
