"""Commands and processes on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from paddock.models.base import Answer, Request, Success
from paddock.models.sandboxes import SandboxAnswer, SandboxRef
from paddock.models.values import _SIGNALS, BASE64, Command, Env, HardTimeout, SandboxPath, Text, UserName, Wait, _whole


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
    user: UserName | None = None
    stream: bool = Field(default=False, description="Answer with server-sent events as the output comes.")


class CommandResult(Success):
    sandbox_id: str
    process_id: str
    status: CommandStatus
    exit_code: int | None = Field(description="None while it runs.")
    output: str = Field(description="stdout, then stderr.")
    stdout: str
    stderr: str
    stdout_start: int = Field(default=0, description="Where `stdout` begins: the oldest byte that was kept.")
    stderr_start: int = 0
    stdout_skipped: int = Field(default=0, description="Bytes before that which are kept no more.")
    stderr_skipped: int = 0
    stdout_offset: int = Field(description="Where to go on reading.")
    stderr_offset: int
    truncated: bool = Field(description="Not everything is here: read the rest by `process_id` and offset.")
    duration: float = Field(description="Seconds.")


class CreatedSandbox(SandboxAnswer):
    command: CommandResult | None = Field(default=None, description="Of the `command` that it was made with.")


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
    user: UserName | None = None
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
    stdout_skipped: int = Field(default=0, description="Bytes that were asked for and are kept no more.")
    stderr_skipped: int = 0
    stdout_offset: int = Field(description="Where to go on reading.")
    stderr_offset: int
    eof: bool = Field(description="The process has ended and nothing is left to read.")


class WriteStdin(Request):
    data: Text = Field(default="", description="Text, written first.")
    data_base64: str | None = Field(default=None, pattern=BASE64, description="Bytes, written after `data`.")
    close: bool = Field(default=False, description="Close the input after this.")


class SendSignal(Request):
    signal: str = Field(default="SIGTERM", pattern=f"^(SIG)?({_SIGNALS})$", examples=["SIGINT"])
