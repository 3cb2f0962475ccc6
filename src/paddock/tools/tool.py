"""A tool: one typed function, with the metadata that models and programs need to use it.

The function's first parameter is the :class:`~paddock.tools.context.ToolContext`; the others, annotated with a
``Field`` and its description, are the arguments, and its docstring is the description. It returns a :class:`ToolReply`,
or raises :class:`ToolFailed` with the next step in the message.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from paddock import errors
from paddock.tools.argument_errors import explain
from paddock.tools.context import ToolContext

Data = TypeVar("Data", bound=BaseModel)
Function = Callable[..., Awaitable["ToolReply[Any]"]]

_REPORTED_ERRORS = (
    errors.NotFound,
    errors.Conflict,
    errors.Invalid,
    errors.PathDenied,
    errors.PayloadTooLarge,
    errors.Unsupported,
)
"""Errors inside a sandbox, which are reported to the model and do not fail the call."""
_RAISED_ERRORS = (errors.SandboxNotFound, errors.SandboxGone, errors.SandboxFailed, errors.SandboxBusy, errors.Asleep)
"""Errors about the sandbox itself, which fail the call."""
_OTHER_NAMES = {
    "file": "path",
    "file_path": "path",
    "filename": "path",
    "directory": "path",
    "cmd": "command",
    "pattern": "glob",
}
"""Argument names of other tool servers, accepted if the tool has no argument of that name itself."""
_PATH_HINT = "list_directory shows what is there; glob_files finds a file by its name."


class ToolFailed(errors.PaddockError):
    """The tool could not do it. The message says why, and what to try next."""

    status = 422
    code = "tool_failed"


@dataclass(frozen=True, slots=True)
class Picture:
    data: bytes
    media_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class ToolReply(Generic[Data]):
    """A tool's reply: a short text for the model, the same as data for programs, and images."""

    text: str
    data: Data
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of one call, as shown by every view."""

    text: str
    data: Mapping[str, Any] | None = None
    pictures: tuple[Picture, ...] = ()
    failed: bool = False


@dataclass(frozen=True)
class Tool:
    name: str
    """In MCP, in the API and on the command line."""
    title: str
    function: Function
    langchain: str | None = None
    """Its LangChain name, if different."""
    read_only: bool = False
    destructive: bool = False
    """May overwrite or end something that cannot be restored."""
    idempotent: bool = False
    open_world: bool = False
    """Reaches beyond the sandbox."""
    kit: str = "files"
    """Heading under which it is listed."""

    @property
    def langchain_name(self) -> str:
        return self.langchain or self.name

    @cached_property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def arguments(self) -> type[BaseModel]:
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in list(inspect.signature(self.function).parameters.values())[1:]:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return dict(_plain(self.arguments.model_json_schema()))

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        answer = get_type_hints(self.function)["return"]
        data: type[BaseModel] = get_args(answer)[0]
        return dict(_plain(data.model_json_schema(mode="serialization")))

    async def call(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Raises only errors outside the tool: invalid arguments, or an unavailable sandbox."""
        try:
            given = self.arguments.model_validate(self._renamed(arguments))
        except ValidationError as problem:
            raise errors.Invalid(explain(self.name, self.arguments, problem)) from None
        values = {name: getattr(given, name) for name in type(given).model_fields}
        try:
            reply = await self.function(ctx, **values)
        except _RAISED_ERRORS:
            raise
        except errors.PathNotFound as problem:
            return ToolOutcome(f"{problem.message} {_PATH_HINT}", failed=True)
        except (ToolFailed, *_REPORTED_ERRORS) as problem:
            return ToolOutcome(problem.message, failed=True)
        return ToolOutcome(reply.text, reply.data.model_dump(mode="json"), reply.pictures)

    def _renamed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        known = self.arguments.model_fields
        renamed = dict(arguments)
        for other, name in _OTHER_NAMES.items():
            if other in renamed and other not in known and name in known and name not in renamed:
                renamed[name] = renamed.pop(other)
        return renamed


@dataclass
class ToolKit:
    """Tools that belong together, in order of definition."""

    name: str
    tools: list[Tool] = field(default_factory=list)

    def tool(self, name: str, title: str, **traits: Any) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            self.tools.append(Tool(name=name, title=title, function=function, kit=self.name, **traits))
            return function

        return add


def _plain(schema: Any) -> Any:
    """Remove titles generated by pydantic: they do not help a model and cost tokens."""
    if isinstance(schema, dict):
        return {
            name: {key: _plain(each) for key, each in value.items()} if name == "properties" else _plain(value)
            for name, value in schema.items()
            if not (name == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    return schema
