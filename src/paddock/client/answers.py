"""Return types of the clients: the models of the wire format, which can also be read as mappings.

``box.sandbox_id`` and ``box["sandbox_id"]`` are the same. Read as a mapping, an answer is the JSON document that the
server sent, including nested objects: ``json.dumps(dict(box))`` works.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, KeysView, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from paddock import models

Default = TypeVar("Default")


class AsMapping(BaseModel):
    """Makes a model readable as a ``Mapping`` of its fields."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return _plain(getattr(self, name))

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(type(self).model_fields)

    def __len__(self) -> int:
        return len(type(self).model_fields)

    def __contains__(self, name: object) -> bool:
        return name in type(self).model_fields

    def keys(self) -> KeysView[str]:
        return type(self).model_fields.keys()

    def values(self) -> list[Any]:
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, self[name]) for name in self]

    def get(self, name: str, default: Default | None = None) -> Any | Default | None:
        return self[name] if name in self else default  # noqa: SIM401 (this is that method)


Mapping.register(AsMapping)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


class Done(AsMapping, models.Success):
    pass


class Sandbox(AsMapping, models.SandboxAnswer):
    def __str__(self) -> str:
        return self.sandbox_id


class CreatedSandbox(Sandbox):
    """A new sandbox, and the result of the command that was part of the request."""

    command: CommandResult | None = None


class SandboxPage(AsMapping, models.SandboxPage):
    sandboxes: list[Sandbox]  # type: ignore[assignment]


class CommandResult(AsMapping, models.CommandResult):
    def __str__(self) -> str:
        """``print(result)`` prints the output."""
        return self.output


class Process(AsMapping, models.ProcessAnswer):
    pass


class ProcessOutput(AsMapping, models.ProcessOutput):
    @property
    def raw_stdout(self) -> bytes:
        return _bytes(self.stdout, self.stdout_base64)

    @property
    def raw_stderr(self) -> bytes:
        return _bytes(self.stderr, self.stderr_base64)


class Started(AsMapping):
    """The first event of a streamed command. Contains the process id, by which the command can be found again."""

    type: Literal["started"] = "started"
    process_id: str


class Output(AsMapping):
    """A chunk of output."""

    type: Literal["output"] = "output"
    stream: Literal["stdout", "stderr"]
    offset: int
    data: str
    data_base64: str | None = None
    skipped: int = 0
    """Bytes before ``offset`` that were requested but are no longer stored."""

    @property
    def raw(self) -> bytes:
        return _bytes(self.data, self.data_base64)


class Ended(Process):
    """The last event: the process when it ended, or as it is at the soft timeout."""

    type: Literal["exit"] = "exit"


ProcessEvent = Started | Output | Ended


class CodeResult(AsMapping, models.CodeResult):
    def __str__(self) -> str:
        """What a notebook would show: printed output, the value of the last expression, the exception."""
        raised = self.error and (self.error.traceback or f"{self.error.name}: {self.error.value}")
        seen = [part for part in (self.stdout, self.stderr, self.text, raised) if part]
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in seen[:-1]) + "".join(seen[-1:])


class ToolInfo(AsMapping, models.ToolInfo):
    pass


class ToolResult(AsMapping, models.ToolResult):
    def __str__(self) -> str:
        return self.text


class CodeContext(AsMapping, models.CodeContext):
    pass


class CodeStarted(AsMapping):
    """The first event of streamed code."""

    type: Literal["started"] = "started"
    execution_count: int


class CodeOutput(AsMapping):
    """A chunk of the code's printed output."""

    type: Literal["output"] = "output"
    stream: Literal["stdout", "stderr"]
    data: str


class CodeShown(AsMapping, models.CodeValue):
    """A result: the value of the last expression, or an object that the code displayed."""

    type: Literal["result"] = "result"


class CodeRaised(AsMapping, models.CodeError):
    type: Literal["exception"] = "exception"


class CodeEnded(AsMapping):
    """The last event."""

    type: Literal["end"] = "end"
    status: models.CodeStatus


CodeEvent = CodeStarted | CodeOutput | CodeShown | CodeRaised | CodeEnded


class Service(AsMapping, models.ServiceAnswer):
    pass


class McpServer(AsMapping, models.McpServerAnswer):
    pass


class PortUrls(AsMapping, models.PortUrl):
    def __str__(self) -> str:
        return self.url


class Link(AsMapping, models.LinkAnswer):
    pass


class Ticket(AsMapping, models.TicketAnswer):
    pass


class File(AsMapping, models.FileAnswer):
    pass


class Written(AsMapping, models.FileWritten):
    pass


class FileChange(AsMapping):
    path: str
    change: Literal["created", "modified", "removed"]


class Event(AsMapping, models.EventAnswer):
    pass


class EventPage(AsMapping, models.EventPage):
    events: list[Event]  # type: ignore[assignment]


class Isolation(AsMapping, models.IsolationAnswer):
    pass


class Egress(AsMapping, models.EgressAnswer):
    pass


class Usage(AsMapping, models.UsageAnswer):
    pass


class Metrics(AsMapping, models.MetricsAnswer):
    pass


class Key(AsMapping, models.KeyAnswer):
    pass


class NewKey(AsMapping, models.NewKeyAnswer):
    pass


class User(AsMapping, models.UserAnswer):
    pass


class Addon(AsMapping, models.AddonAnswer):
    pass


class AddonProgress(AsMapping, models.AddonProgress):
    """The progress of an installation."""

    type: Literal["progress"] = "progress"


class AddonEnded(AsMapping, models.AddonAnswer):
    """The last event."""

    type: Literal["end"] = "end"


AddonEvent = AddonProgress | AddonEnded


class Template(AsMapping, models.TemplateInfo):
    pass


class Health(AsMapping, models.Health):
    pass


def _bytes(text: str, encoded: str | None) -> bytes:
    return text.encode() if encoded is None else base64.b64decode(encoded)
