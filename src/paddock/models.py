"""The wire: every request and answer of the native API, shared by server, clients and CLI.

Unknown fields are refused in requests, so that a typo is an error and not a surprise.
Timestamps are RFC 3339 in UTC.
"""

from __future__ import annotations

import json
import math
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from paddock.ids import USER_ID_PATTERN

MAX_COMMAND = 128 * 1024 - 1
"""The kernel takes no longer single argument."""
MAX_METADATA = 16 * 1024
MAX_METADATA_DEPTH = 32
MAX_ENV = 64 * 1024
MAX_PATH = 4095
"""The kernel's 4096 count the NUL at the end."""
MAX_WAIT = 3600.0
MAX_HARD_TIMEOUT = 86_400.0

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNALS = "HUP|INT|QUIT|ABRT|KILL|USR1|USR2|TERM|CONT|STOP|TSTP|WINCH"
BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
# What the checks below say, for readers of the OpenAPI document.
_PLAIN_TEXT = r"^[^\u0000]*$"
_PLAIN_PATH = r"^(/([^/.\u0000][^/\u0000]{0,254}|\.([^/.\u0000][^/\u0000]{0,253})?|\.\.[^/\u0000]{1,253})?)+$"
GIT_URL = r"^(?:(?:https?|ssh|git|file)://[^\s\u0000]+|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:[A-Za-z0-9_./~-]+)$"


def _valid_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode (it holds a lone surrogate)") from None
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return _valid_unicode(text)


def _one_argument(command: str) -> str:
    if len(_no_nul(command).encode()) > MAX_COMMAND:
        raise ValueError(f"must stay under {MAX_COMMAND} bytes; write a longer script to a file and run that")
    return command


def _whole(value: Any) -> Any:
    """60.0 is the integer 60, as JSON Schema has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not a name for an environment variable")
        _no_nul(value)
    if sum(len(name) + len(value) for name, value in env.items()) > MAX_ENV:
        raise ValueError(f"names and values together must stay under {MAX_ENV} characters")
    return env


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    _check_json(metadata, MAX_METADATA_DEPTH)
    if len(json.dumps(metadata)) > MAX_METADATA:
        raise ValueError(f"must stay under {MAX_METADATA} bytes as JSON; keep larger things in a file")
    return metadata


def _check_json(value: Any, depth: int) -> None:
    """Only what every database and every JSON parser takes."""
    if depth == 0:
        raise ValueError(f"must not be nested deeper than {MAX_METADATA_DEPTH} levels")
    match value:
        case str():
            _no_nul(value)
        case float() if not math.isfinite(value):
            raise ValueError("must hold finite numbers only")
        case dict():
            for name, item in value.items():
                _no_nul(name)
                _check_json(item, depth - 1)
        case list():
            for item in value:
                _check_json(item, depth - 1)


def _check_path(path: str) -> str:
    """Absolute and free of ``..``: what a path means must be plain from reading it."""
    _no_nul(path)
    if not path.startswith("/"):
        raise ValueError("must be absolute, for example /workspace/notes.txt")
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
    if any(len(part.encode()) > 255 for part in path.split("/")):
        raise ValueError("has a part longer than 255 bytes")
    return path


def _check_sandbox_id(text: str) -> str:
    return _no_nul(text)


SandboxId = Annotated[
    str,
    AfterValidator(_check_sandbox_id),
    Field(
        min_length=1,
        max_length=200,
        description="`{user_id}_{8 hex}`",
        examples=["alice_1f2e3d4c"],
        json_schema_extra={"pattern": _PLAIN_TEXT},
    ),
]
UserId = Annotated[
    str,
    Field(
        pattern=USER_ID_PATTERN,
        max_length=63,
        description="Letters, digits, `-` and `_`; safe in a host name and in a path.",
        examples=["alice"],
    ),
]
SandboxPath = Annotated[
    str,
    AfterValidator(_check_path),
    Field(
        min_length=1,
        max_length=MAX_PATH,
        description="Absolute, without `..`.",
        examples=["/workspace/hello.py"],
        json_schema_extra={"pattern": _PLAIN_PATH},
    ),
]
Seconds = Annotated[int, Field(ge=1, description="Seconds.", examples=[3600]), BeforeValidator(_whole)]
Wait = Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False)]
HardTimeout = Annotated[float, Field(gt=0, le=MAX_HARD_TIMEOUT, allow_inf_nan=False)]
Env = Annotated[
    dict[str, str],
    AfterValidator(_check_env),
    Field(
        examples=[{"GREETING": "hello"}],
        json_schema_extra={
            "propertyNames": {"pattern": f"^{_ENV_NAME.pattern}$"},
            "additionalProperties": {"type": "string", "pattern": _PLAIN_TEXT},
        },
    ),
]
Metadata = Annotated[dict[str, Any], AfterValidator(_check_metadata), Field(examples=[{"chat": "42"}])]
Command = Annotated[
    str,
    AfterValidator(_one_argument),
    Field(
        min_length=1,
        max_length=MAX_COMMAND,
        examples=["python3 hello.py"],
        json_schema_extra={"pattern": _PLAIN_TEXT},
    ),
]
Text = Annotated[str, AfterValidator(_valid_unicode)]


class Request(BaseModel):
    """What a caller sends. Types are taken at their word: the text ``"60"`` is not the number 60."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Success(Answer):
    success: Literal[True] = True
    message: str = ""


# Errors


class ErrorBody(Answer):
    code: str = Field(description="Stable and machine-readable.", examples=["sandbox_not_found"])
    message: str = Field(description="For a person: what went wrong and what to do next.")
    status: int = Field(examples=[404])
    details: dict[str, Any] = Field(default_factory=dict)
    request_id: str = Field(default="", examples=["r_0123456789abcdef"])


class ErrorAnswer(Answer):
    """The one shape of every failure."""

    success: Literal[False] = False
    error: ErrorBody


# Sandboxes


class State(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


class TimeoutAction(StrEnum):
    PAUSE = "pause"
    DELETE = "delete"


# Strictness would ask for the enum's own member; on the wire it is its text.
TimeoutChoice = Annotated[TimeoutAction, Field(strict=False)]


class ResourceRequest(Request):
    cpu: float | None = Field(default=None, gt=0, le=256, allow_inf_nan=False, description="Cores.")
    memory_mb: Annotated[int, Field(ge=16, le=1 << 20), BeforeValidator(_whole)] | None = None
    disk_mb: Annotated[int, Field(ge=16, le=1 << 24), BeforeValidator(_whole)] | None = None
    pids: Annotated[int, Field(ge=4, le=1 << 20), BeforeValidator(_whole)] | None = None


class CreateSandbox(Request):
    user_id: UserId
    template_id: str | None = Field(default=None, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")
    timeout: Seconds | None = Field(
        default=None,
        description="Idle seconds before `on_timeout` strikes. The server has a default and a maximum.",
    )
    max_lifetime: Seconds | None = Field(
        default=None,
        description="Seconds after which `on_timeout` strikes whatever the activity. Default: none.",
    )
    on_timeout: TimeoutChoice = TimeoutAction.PAUSE
    env: Env = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    resources: ResourceRequest = Field(default_factory=ResourceRequest)
    git_url: str | None = Field(
        default=None,
        max_length=2048,
        description="Cloned into `/workspace/<name>` before create answers.",
        examples=["https://example.org/some/project.git"],
        json_schema_extra={"pattern": GIT_URL},
    )
    provider: str | None = Field(default=None, max_length=40, pattern=r"^[a-z0-9_-]+$")

    @field_validator("git_url")
    @classmethod
    def _git_url(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(GIT_URL, _no_nul(url)):
            raise ValueError("must be an http, https, ssh, git or file URL, or user@host:path, without white space")
        return url


class SandboxRef(Request):
    sandbox_id: SandboxId


class ConnectSandbox(SandboxRef):
    timeout: Seconds | None = Field(default=None, description="Also remember this idle timeout from now on.")


class SetTimeout(SandboxRef):
    timeout: Seconds
    action: TimeoutChoice | None = Field(default=None, description="Change what happens when it strikes.")


class ExposePort(SandboxRef):
    port: Annotated[int, Field(ge=1, le=65535, examples=[3000]), BeforeValidator(_whole)]


class ResourceInfo(Answer):
    cpu: float
    memory_mb: int
    disk_mb: int
    pids: int


class SandboxInfo(Answer):
    sandbox_id: str = Field(examples=["alice_1f2e3d4c"])
    key: str = Field(description="The DNS-safe second name, used in host names.")
    user_id: str
    owner_id: str = Field(description="The account whose key made it.")
    status: State
    reason: str | None = Field(default=None, description="Why it is in this state, where that is worth saying.")
    provider: str
    template_id: str
    timeout: int = Field(description="Idle seconds, remembered through connect, pause, resume and restart.")
    on_timeout: TimeoutAction
    max_lifetime: int | None
    resources: ResourceInfo
    metadata: dict[str, Any]
    created_at: str
    started_at: str | None
    last_activity_at: str
    expires_at: str | None = Field(description="When the next deadline strikes, if nothing is done before.")
    expires_action: TimeoutAction | None
    mcp_url: str
    vscode_url: str


class SandboxAnswer(SandboxInfo):
    success: Literal[True] = True
    message: str = ""


class SandboxPage(Answer):
    sandboxes: list[SandboxInfo]
    next_cursor: str | None = Field(default=None, description="Give it back as `cursor` for the next page.")


class PortUrl(Success):
    sandbox_id: str
    port: int
    url: str


# Commands and processes


class CommandStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    LOST = "lost"


class RunCommand(SandboxRef):
    command: Command
    background: bool = False
    timeout: Wait | None = Field(
        default=None,
        description="Soft: seconds to wait for the end. After that the answer is `running`, with the "
        "`process_id` to go on reading from; the command goes on.",
    )
    hard_timeout: HardTimeout | None = Field(
        default=None, description="Hard: seconds after which the process group is killed."
    )
    cwd: SandboxPath | None = None
    env: Env = Field(default_factory=dict)
    user: str | None = Field(default=None, pattern=r"^[a-z_][a-z0-9_-]{0,31}$", examples=["user", "root"])
    stream: bool = Field(default=False, description="Answer with server-sent events as the output comes.")


class CommandResult(Success):
    sandbox_id: str
    process_id: str
    status: CommandStatus
    exit_code: int | None = Field(description="None while it runs.")
    output: str = Field(description="stdout, then stderr.")
    stdout: str
    stderr: str
    stdout_offset: int = Field(description="Where to go on reading.")
    stderr_offset: int
    truncated: bool = Field(description="Not everything is here: read the rest by `process_id` and offset.")
    duration: float = Field(description="Seconds.")


class Terminal(Request):
    rows: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)] = 24
    cols: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)] = 80


class StartProcess(Request):
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["command"], "properties": {"command": {"type": "string"}, "argv": {"type": "null"}}},
                {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": {"type": "null"}}},
            ]
        }
    )

    command: Command | None = None
    argv: list[Command] | None = Field(default=None, min_length=1, max_length=4096)
    cwd: SandboxPath | None = None
    env: Env = Field(default_factory=dict)
    user: str | None = Field(default=None, pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    stdin: bool = Field(default=False, description="Keep a pipe open for the stdin route.")
    terminal: Terminal | None = Field(default=None, description="Run on a PTY of this size.")
    hard_timeout: HardTimeout | None = None

    @model_validator(mode="after")
    def _one_of(self) -> StartProcess:
        if (self.command is None) == (self.argv is None):
            raise ValueError("give either command (run by a shell) or argv (run as it is)")
        return self


class ProcessAnswer(Answer):
    process_id: str = Field(examples=["p_0123456789abcdef"])
    status: CommandStatus
    exit_code: int | None
    pid: int | None
    label: str
    started_at: str
    ended_at: str | None
    stdout_size: int
    stderr_size: int
    terminal: bool


class ProcessList(Answer):
    processes: list[ProcessAnswer]


class ProcessOutput(Answer):
    """A slice of both streams. Offsets count bytes; text that is not UTF-8 is also given whole in base64."""

    process_id: str
    status: CommandStatus
    exit_code: int | None
    stdout: str
    stderr: str
    stdout_base64: str | None = None
    stderr_base64: str | None = None
    stdout_start: int = Field(
        description="Where this slice really begins; larger than asked for when bytes were dropped."
    )
    stderr_start: int
    stdout_offset: int = Field(description="Where to go on reading.")
    stderr_offset: int
    eof: bool = Field(description="The process has ended and nothing is left to read.")


class WriteStdin(Request):
    data: Text = Field(default="", description="Text, written first.")
    data_base64: str | None = Field(default=None, pattern=BASE64, description="Bytes, written after `data`.")
    close: bool = Field(default=False, description="Close the input after this.")


class SendSignal(Request):
    signal: str = Field(default="SIGTERM", pattern=f"^(SIG)?({_SIGNALS})$", examples=["SIGINT"])


# Files


class WriteFile(SandboxRef):
    path: SandboxPath
    content: Text = Field(description="Text, or base64 with `encoding`; empty is legal.")
    encoding: Literal["utf-8", "base64"] = "utf-8"


class ReadFile(SandboxRef):
    path: SandboxPath
    encoding: Literal["utf-8", "base64"] = "utf-8"


class FileContent(Success):
    path: str
    content: str
    encoding: Literal["utf-8", "base64"]
    size: int


class MovePath(Request):
    source: SandboxPath
    destination: SandboxPath


class MakeDirectory(Request):
    path: SandboxPath


class FileAnswer(Answer):
    path: str
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: str = Field(description="Octal permission bits.", examples=["0644"])
    owner: str
    group: str
    modified_at: str
    symlink_target: str | None = None


class FileWritten(Success):
    file: FileAnswer


class FileList(Answer):
    path: str
    entries: list[FileAnswer]


# Events, usage, metrics


class EventAnswer(Answer):
    seq: int = Field(description="Gap-free per sandbox.")
    type: str = Field(examples=["sandbox.running"])
    at: str
    data: dict[str, Any]


class EventPage(Answer):
    events: list[EventAnswer]
    next_after: int = Field(description="Give it back as `after` to go on.")


class UsageRow(Answer):
    user_id: str
    sandbox_id: str | None = None
    day: str | None = Field(default=None, examples=["2030-01-31"])
    seconds: float = Field(description="Running time.")
    commands: int
    bytes_in: int
    bytes_out: int


class UsageAnswer(Answer):
    total: UsageRow
    rows: list[UsageRow]


class MetricsAnswer(Answer):
    at: str
    cpu_count: float
    cpu_seconds: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int
    process_count: int


# Keys and users


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"


RoleChoice = Annotated[Role, Field(strict=False)]


class QuotaChange(Request):
    """Null takes the server's default; 0 means no limit."""

    max_live: Annotated[int, Field(ge=0, le=1 << 30), BeforeValidator(_whole)] | None = None
    max_cpu: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    max_memory_mb: Annotated[int, Field(ge=0, le=1 << 40), BeforeValidator(_whole)] | None = None
    requests_per_second: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


class QuotaAnswer(Answer):
    max_live: int
    max_cpu: float
    max_memory_mb: int
    requests_per_second: float


class CreateKey(Request):
    name: UserId = Field(description="To tell keys apart; also the user, where none is named.")
    user_id: UserId | None = Field(default=None, description="The account that the key acts for; made if new.")
    role: RoleChoice | None = Field(default=None, description="Of a new account. Default: member.")


class KeyAnswer(Answer):
    key_id: int
    name: str
    user_id: str
    prefix: str
    created_at: str
    last_used_at: str | None


class NewKeyAnswer(KeyAnswer):
    success: Literal[True] = True
    key: str = Field(description="Shown this once; only its hash is kept.")


class KeyList(Answer):
    keys: list[KeyAnswer]


class CreateUser(Request):
    user_id: UserId
    role: RoleChoice = Role.MEMBER
    quota: QuotaChange = Field(default_factory=QuotaChange)


class ChangeUser(Request):
    role: RoleChoice | None = None
    quota: QuotaChange | None = None
    disabled: bool | None = None


class UserAnswer(Answer):
    user_id: str
    role: Role
    disabled: bool
    quota: QuotaAnswer
    created_at: str


class UserList(Answer):
    users: list[UserAnswer]


class Health(Answer):
    status: Literal["ok", "degraded"]
    version: str
    provider: str
    database: Literal["ok", "unavailable"]
    server_id: str
