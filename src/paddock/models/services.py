"""Services of a sandbox on the wire: what starts when a port is first used."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from paddock.models.base import Answer, Request
from paddock.models.values import Command, Env, SandboxPath, UserName, _whole

MAX_READY_TIMEOUT = 300.0


def _no_controls(path: str) -> str:
    if not path.isprintable() or not path.isascii() or " " in path:
        raise ValueError("must be printable ASCII without spaces; percent-encode the rest")
    return path


ServiceName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$", examples=["web"], description="Unique in its sandbox."),
]
Port = Annotated[int, Field(ge=1, le=65535, examples=[3000]), BeforeValidator(_whole)]


class PutService(Request):
    port: Port
    command: Command
    env: Env = Field(default_factory=dict)
    cwd: SandboxPath | None = None
    user: UserName | None = None
    ready_path: (
        Annotated[
            str,
            AfterValidator(_no_controls),
            Field(
                min_length=1,
                max_length=1000,
                pattern=r"^/",
                examples=["/health"],
                json_schema_extra={"pattern": r"^/[\x21-\x7e]*$"},
                description="Ready when a GET of this path answers below 500. Without it, when the port is open.",
            ),
        ]
        | None
    ) = None
    ready_timeout: Annotated[float, Field(gt=0, le=MAX_READY_TIMEOUT, allow_inf_nan=False)] = Field(
        default=30.0, description="Seconds in which it must be ready."
    )


class ServiceAnswer(Answer):
    name: str
    port: int
    command: str
    env: dict[str, str]
    cwd: str
    user: str
    ready_path: str | None
    ready_timeout: float
    running: bool = Field(description="Its process lives. False also while the sandbox is paused.")
    process_id: str | None = Field(description="Of its latest start, to read its output by.")


class ServiceList(Answer):
    services: list[ServiceAnswer]
