"""Running code on the wire: executions, what they say, and the contexts that they run in."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from paddock.models.base import Answer, Request, Success
from paddock.models.sandboxes import SandboxRef
from paddock.models.values import Env, HardTimeout, SandboxPath, Text

Language = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_+#-]{1,32}$",
        description="`python` unless it is said, `javascript`, `typescript`, `bash`, `r` or `java`.",
        examples=["python", "javascript"],
    ),
]
_CONTEXT_ID = r"^[A-Za-z0-9-]{1,64}$"
ContextId = Annotated[str, Field(pattern=_CONTEXT_ID, examples=["5c1d7a52-6f9e-4e0f-9d52-0f8f2a1f7d3b"])]


def is_context_id(text: str) -> bool:
    return re.fullmatch(_CONTEXT_ID, text) is not None


class CodeStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    """It raised something; see ``error``."""
    TIMED_OUT = "timed_out"
    """It was interrupted when its time was over."""


class RunCode(SandboxRef):
    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "required": ["language", "context_id"],
                "properties": {"language": {"type": "string"}, "context_id": {"type": "string"}},
            }
        }
    )

    code: Text
    language: Language | None = None
    context_id: ContextId | None = Field(
        default=None, description="Where to run it. Without one, the default context of the language, in /workspace."
    )
    timeout: HardTimeout | None = Field(default=None, description="Seconds after which the code is interrupted.")
    env: Env = Field(default_factory=dict, description="For this execution alone.")
    stream: bool = Field(default=False, description="Answer with server-sent events as it goes.")

    @model_validator(mode="after")
    def _one_of(self) -> RunCode:
        if self.language is not None and self.context_id is not None:
            raise ValueError("give a language or a context, not both: a context has its language")
        return self


class CodeValue(Answer):
    """Something that the code showed, in as many forms as it has."""

    is_main_result: bool = Field(description="The value of the last expression, rather than something displayed.")
    text: str | None = Field(default=None, description="As plain text.")
    formats: dict[str, Any] = Field(
        default_factory=dict,
        description="Its other forms: `html`, `markdown`, `svg`, `latex`, `javascript` as text; `png`, `jpeg`, `pdf` "
        "in base64; `json`, `data` (columns of a table) and `chart` as JSON; other MIME types by their name.",
    )


class CodeError(Answer):
    name: str = Field(examples=["ZeroDivisionError"])
    value: str = Field(examples=["division by zero"])
    traceback: str = ""


class CodeResult(Success):
    sandbox_id: str
    status: CodeStatus
    text: str | None = Field(description="The main result as plain text.")
    results: list[CodeValue]
    stdout: str
    stderr: str
    error: CodeError | None
    execution_count: int | None = Field(description="How many executions this context has had.")
    truncated: bool = Field(description="There was more than one answer may hold; stream it, or write it to a file.")
    duration: float = Field(description="Seconds.")


class CreateCodeContext(Request):
    language: Language | None = None
    cwd: SandboxPath | None = None


class CodeContext(Answer):
    context_id: str
    language: str
    cwd: str


class CodeContextList(Answer):
    contexts: list[CodeContext]
