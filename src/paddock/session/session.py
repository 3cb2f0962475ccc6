"""What sync and async sessions share: a sandbox, its tools, and the connection to the server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from paddock.client.answers import Sandbox, ToolInfo
from paddock.client.pair import ClientPair
from paddock.errors import Conflict, Unsupported
from paddock.session.opening import AtExit, SandboxOptions
from paddock.session.within import SessionOperations

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


class Session(SessionOperations):
    def __init__(
        self, session_id: str, user_id: str, clients: ClientPair, at_exit: AtExit, options: SandboxOptions
    ) -> None:
        self.session_id = session_id
        self.user_id = user_id
        self.at_exit = at_exit
        self.clients = clients
        self._options = options
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

    def _here(self) -> tuple[Sandbox, list[ToolInfo]]:
        if self._opened is None:
            raise Conflict("This has no sandbox yet: call `await sandbox.create()` first.")
        return self._opened

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.session_id!r} {f'in {self.sandbox_id}' if self._opened else 'not open'}>"
