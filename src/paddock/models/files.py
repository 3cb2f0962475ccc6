"""Files on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from paddock.models.base import Answer, Request, Success
from paddock.models.sandboxes import SandboxRef
from paddock.models.values import SandboxPath, Text, UserName


def _nothing_is_empty(content: Any) -> Any:
    return "" if content is None else content


class WriteFile(SandboxRef):
    path: SandboxPath
    content: Annotated[Text, BeforeValidator(_nothing_is_empty, json_schema_input_type=str | None)] = Field(
        description="Text, or base64 with `encoding`; empty, or null, makes an empty file."
    )
    encoding: Literal["utf-8", "base64"] = "utf-8"
    user: UserName | None = None


class ReadFile(SandboxRef):
    path: SandboxPath
    encoding: Literal["utf-8", "base64"] = "utf-8"
    user: UserName | None = None


class FileContent(Success):
    path: str
    content: str
    encoding: Literal["utf-8", "base64"]
    size: int


class MovePath(Request):
    source: SandboxPath
    destination: SandboxPath
    user: UserName | None = None


class MakeDirectory(Request):
    path: SandboxPath
    user: UserName | None = None


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
