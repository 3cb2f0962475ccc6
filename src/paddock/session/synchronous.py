"""The sync session: the same methods as the async session, without ``await``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self, TypeVar, Unpack

from paddock.client.call import ApiCall, StreamCall
from paddock.client.calls.tools import list_tools
from paddock.errors import SandboxGone, SandboxNotFound
from paddock.session.opening import USER, SessionOptions, open_session
from paddock.session.session import Session

T = TypeVar("T")


class SyncSandboxSession(Session):
    """``with SyncSandboxSession.create(session_id="chat_123") as session: …``"""

    @classmethod
    def create(cls, session_id: str | None = None, user_id: str = USER, **options: Unpack[SessionOptions]) -> Self:
        """Open the session with this id: finds its sandbox and resumes it if necessary, or creates one.

        A session with an id keeps its sandbox when it is closed, and is found again by ``session_id`` and ``user_id``;
        one without an id is new, and its sandbox is deleted. ``at_exit`` (``keep``, ``pause``, ``delete``) overrides
        that.
        """
        session = cls(session_id, user_id, **options)
        try:
            sandbox = session.clients.run(open_session(session.session_id, user_id, session._options))
            session._opened = sandbox, session._run(list_tools(sandbox.sandbox_id))
        except BaseException:
            session.clients.close()
            raise
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Apply ``at_exit`` to the sandbox, and close the connections."""
        try:
            if (end := self._ending()) is not None:
                self._run(end)
        except (SandboxNotFound, SandboxGone):
            pass  # it was deleted by somebody else
        finally:
            self.clients.close()

    def _run(self, call: ApiCall[T]) -> T:
        return self.clients.plain()._run(call)

    def _stream(self, call: StreamCall[T]) -> Iterator[T]:
        return self.clients.plain()._stream(call)
