"""Messages on the WebSockets of a process and of a terminal, one JSON object per text frame."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from paddock import errors, json_limits
from paddock.machine.base import OutputChunk, ProcessInfo
from paddock.models import BASE64, Request, SendSignal, Terminal


class Stdin(Request):
    type: Literal["stdin"]
    data: str = Field(pattern=BASE64, description="Base64.")


class CloseStdin(Request):
    type: Literal["close_stdin"]


class Signal(SendSignal):
    type: Literal["signal"]


class Resize(Terminal):
    type: Literal["resize"]


ClientFrame = Stdin | CloseStdin | Signal | Resize
_FRAME: TypeAdapter[ClientFrame] = TypeAdapter(Annotated[ClientFrame, Field(discriminator="type")])


def read_frame(text: str) -> ClientFrame:
    json_limits.check(text.encode(errors="replace"))
    try:
        return _FRAME.validate_json(text)
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        raise errors.Invalid(f"This frame is not understood: {first['msg'][:60]}") from None


def output_frame(chunk: OutputChunk) -> dict[str, Any]:
    frame = {"type": chunk.stream.value, "offset": chunk.offset, "data": base64.b64encode(chunk.data).decode()}
    return {**frame, "skipped": chunk.skipped} if chunk.skipped else frame


def gap_frame(chunk: OutputChunk) -> dict[str, Any]:
    """For a terminal's socket, whose output frames are raw bytes: number of bytes missing before the next frame."""
    return {"type": "gap", "offset": chunk.offset, "skipped": chunk.skipped}


def exit_frame(info: ProcessInfo) -> dict[str, Any]:
    return {"type": "exit", "exit_code": info.exit_code, "status": info.status.value, "process_id": info.process_id}


def error_frame(error: errors.PaddockError) -> dict[str, Any]:
    return {"type": "error", "code": error.code, "message": error.message}
