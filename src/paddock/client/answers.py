"""What the clients answer with: the wire's models, which can also be read as mappings.

``box.sandbox_id`` and ``box["sandbox_id"]`` are the same. Read as a mapping, an answer is the JSON document that the
server sent, all the way down: ``json.dumps(dict(box))`` works.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, KeysView, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from paddock import models

Default = TypeVar("Default")


class AsMapping(BaseModel):
    """Gives a model the read side of a ``Mapping``, over its fields."""

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
    """A new one, and what the command said that it was made with."""

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
    """The first event of a streamed command: from here on it can be found again by its id."""

    type: Literal["started"] = "started"
    process_id: str


class Output(AsMapping):
    """A piece of output, as it came."""

    type: Literal["output"] = "output"
    stream: Literal["stdout", "stderr"]
    offset: int
    data: str
    data_base64: str | None = None
    skipped: int = 0
    """Bytes before ``offset`` that were asked for and are kept no more."""

    @property
    def raw(self) -> bytes:
        return _bytes(self.data, self.data_base64)


class Ended(Process):
    """The last event: the process as it ended (or as it is, when a soft timeout came first)."""

    type: Literal["exit"] = "exit"


ProcessEvent = Started | Output | Ended


class CodeResult(AsMapping, models.CodeResult):
    def __str__(self) -> str:
        """What a person would have seen: what it printed, the value of its last expression, what it raised."""
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
    """A piece of what the code printed, as it came."""

    type: Literal["output"] = "output"
    stream: Literal["stdout", "stderr"]
    data: str


class CodeShown(AsMapping, models.CodeValue):
    """A result: the value of the last expression, or something that was displayed."""

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
    """How far an installation has come."""

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
