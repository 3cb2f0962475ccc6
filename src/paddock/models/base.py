"""What every request and answer has in common, and the one shape of failure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Request(BaseModel):
    """What a caller sends. Types are taken at their word: the text ``"60"`` is not the number 60."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    # Each is built when it is first used: most programs use few of them, and a command line waits for all.
    model_config = ConfigDict(extra="ignore", defer_build=True)


class Success(Answer):
    success: Literal[True] = True
    message: str = ""


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
