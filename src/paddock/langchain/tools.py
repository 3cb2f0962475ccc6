"""LangChain tools from a sandbox's catalogue: each is one API call, usable from coroutines and plain code.

The schema is the catalogue's own, and the server validates the arguments. A failing tool is reported to the model
(``status="error"`` with the text); a deleted sandbox or a missing permission is raised to the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol

from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
from pydantic import ConfigDict

from paddock.client.answers import ToolInfo, ToolResult
from paddock.client.call import ApiCall
from paddock.client.calls.tools import call_tool
from paddock.client.pair import ClientPair
from paddock.errors import (
    Forbidden,
    PaddockError,
    SandboxFailed,
    SandboxGone,
    SandboxNotFound,
    ToolNotFound,
    Unauthorized,
)

CALL_SECONDS = 1800.0
"""Maximum seconds of one call."""
_NOT_FOR_MODELS = (Unauthorized, Forbidden, SandboxNotFound, SandboxGone, SandboxFailed)

Content = str | list[dict[str, Any]]


def make_tools(
    catalogue: Sequence[ToolInfo],
    sandbox_id: str,
    clients: ClientPair,
    *,
    names: Iterable[str] | None = None,
    kits: Iterable[str] | None = None,
    read_only: bool | None = None,
) -> list[BaseTool]:
    """The tools of the catalogue, or a selection: by name (MCP's or LangChain's), by kit, or only those that change
    nothing."""
    chosen = choose(catalogue, names=names, kits=kits, read_only=read_only)
    naming = Naming.of(catalogue)
    return [make_tool(info, sandbox_id, clients, naming) for info in chosen]


def choose(
    catalogue: Sequence[ToolInfo],
    *,
    names: Iterable[str] | None = None,
    kits: Iterable[str] | None = None,
    read_only: bool | None = None,
) -> list[ToolInfo]:
    wanted = None if names is None else list(names)
    groups = None if kits is None else list(kits)
    for name in wanted or ():
        if not any(name in (info.name, info.langchain_name) for info in catalogue):
            known = ", ".join(info.langchain_name for info in catalogue)
            raise ToolNotFound(f"There is no tool {name!r}. There are: {known}.")
    for group in groups or ():
        if not any(group == info.kit for info in catalogue):
            raise ToolNotFound(f"There is no kit {group!r}. There are: {', '.join(kits_of(catalogue))}.")
    return [
        info
        for info in catalogue
        if (wanted is None or info.name in wanted or info.langchain_name in wanted)
        and (groups is None or info.kit in groups)
        and (read_only is None or info.read_only is read_only)
    ]


def kits_of(catalogue: Sequence[ToolInfo]) -> list[str]:
    return list(dict.fromkeys(info.kit for info in catalogue))


def make_tool(info: ToolInfo, sandbox_id: str, clients: ClientPair, naming: Naming | None = None) -> BaseTool:
    """``naming``: of the whole catalogue, because descriptions mention other tools."""
    spoken = Naming.of([info]) if naming is None else naming

    def call(arguments: Mapping[str, Any]) -> ApiCall[ToolResult]:
        return call_tool(sandbox_id, info.name, arguments, timeout=CALL_SECONDS)

    def plain(**arguments: Any) -> tuple[Content, dict[str, Any] | None]:
        try:
            result = clients.plain()._run(call(arguments))
        except PaddockError as error:
            _tell(error, spoken)
        return _said(result, spoken)

    async def awaited(**arguments: Any) -> tuple[Content, dict[str, Any] | None]:
        try:
            result = await clients.here()._run(call(arguments))
        except PaddockError as error:
            _tell(error, spoken)
        return _said(result, spoken)

    return StructuredTool(
        name=info.langchain_name,
        description=spoken.sentence(info.description),
        args_schema=spoken.schema(info.input_schema),
        func=plain,
        coroutine=awaited,
        response_format="content_and_artifact",
        handle_tool_error=True,
        tags=[info.kit],
        metadata={
            "sandbox_id": sandbox_id,
            "paddock_tool": info.name,
            "title": info.title,
            "readOnlyHint": info.read_only,
            "destructiveHint": info.destructive,
            "idempotentHint": info.idempotent,
            "openWorldHint": info.open_world,
        },
    )


def _tell(error: PaddockError, naming: Naming) -> NoReturn:
    if isinstance(error, _NOT_FOR_MODELS):
        raise error
    raise ToolException(naming.sentence(error.message)) from error


def _said(result: ToolResult, naming: Naming) -> tuple[Content, dict[str, Any] | None]:
    if result.failed:
        raise ToolException(naming.sentence(result.text))
    text = naming.answer(result.text)
    if not result.pictures:
        return text, result.data
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "image", "base64": picture.data, "mime_type": picture.media_type} for picture in result.pictures
    ]
    return content, result.data


class OpenSession(Protocol):
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
    def of(
        cls, session: OpenSession, *, kits: list[str] | None = None, read_only: bool | None = None
    ) -> SandboxToolkit:
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


@dataclass(frozen=True)
class Naming:
    """Replaces tool names in descriptions and answers: they use the catalogue's names, but the model knows
    LangChain's."""

    names: dict[str, str]
    """LangChain names by catalogue names, where they differ."""

    @classmethod
    def of(cls, catalogue: Iterable[ToolInfo]) -> Naming:
        return cls({info.name: info.langchain_name for info in catalogue if info.name != info.langchain_name})

    def sentence(self, text: str) -> str:
        """Rename tools in text written by Paddock: a description, an error."""
        return self._name.sub(lambda found: self.names[found[0]], text)

    def schema(self, schema: Any, *, names: bool = False) -> Any:
        """The schema with tools renamed in its descriptions. ``names``: its keys are names of arguments."""
        if isinstance(schema, list):
            return [self.schema(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        return {
            word: self.sentence(value)
            if word == "description" and isinstance(value, str) and not names
            else self.schema(value, names=word in ("properties", "$defs") and not names)
            for word, value in schema.items()
        }

    def answer(self, text: str) -> str:
        """Rename tools in an answer: only in the lines that Paddock adds (``[still running …]``, ``… more``)."""
        return self._hint.sub(lambda line: self.sentence(line[0]), text)

    @cached_property
    def _name(self) -> re.Pattern[str]:
        return re.compile(rf"\b(?:{self._any})\b")

    @cached_property
    def _hint(self) -> re.Pattern[str]:
        return re.compile(rf"^(?:\[|… ).*\b(?:with|next) (?:{self._any})\b.*$", re.MULTILINE)

    @property
    def _any(self) -> str:
        return "|".join(map(re.escape, self.names)) or r"(?!)"
