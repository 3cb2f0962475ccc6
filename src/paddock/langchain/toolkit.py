"""A sandbox's tools as a LangChain toolkit, kit by kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool, BaseToolkit
from pydantic import ConfigDict

from paddock.client.answers import ToolInfo
from paddock.client.pair import ClientPair
from paddock.langchain.tools import kits_of, make_tools

if TYPE_CHECKING:
    from typing import Protocol

    class Opened(Protocol):
        """A session, sync or async."""

        catalogue: list[ToolInfo]
        clients: ClientPair

        @property
        def sandbox_id(self) -> str: ...


class SandboxToolkit(BaseToolkit):
    """For frameworks that take toolkits. ``kits`` and ``read_only`` restrict the tools."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sandbox_id: str
    catalogue: list[ToolInfo]
    clients: ClientPair
    kits: list[str] | None = None
    read_only: bool | None = None

    @classmethod
    def of(cls, session: Opened, *, kits: list[str] | None = None, read_only: bool | None = None) -> SandboxToolkit:
        return cls(
            sandbox_id=session.sandbox_id,
            catalogue=session.catalogue,
            clients=session.clients,
            kits=kits,
            read_only=read_only,
        )

    @property
    def known_kits(self) -> list[str]:
        return kits_of(self.catalogue)

    def get_tools(self) -> list[BaseTool]:
        return make_tools(self.catalogue, self.sandbox_id, self.clients, kits=self.kits, read_only=self.read_only)
