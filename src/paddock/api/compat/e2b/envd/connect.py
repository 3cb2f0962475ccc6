"""The Connect protocol with JSON: encodes and decodes messages and errors.

A unary call is one JSON object each way, and an error is an HTTP status with the code's name in the body. A stream is a
sequence of envelopes (flag byte, four-byte length, JSON) with HTTP 200; the last envelope has flag 2 and contains the
error, if any.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

from paddock import errors, json_limits, large_json
from paddock.api.compat.e2b.envd.http import Body
from paddock.loop_turns import give_turn
from paddock.workers import Workers

UNARY = "application/json"
STREAM = "application/connect+json"
STREAM_HEADERS = {"Content-Type": STREAM, "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
MAX_MESSAGE = 64 << 20
"""Maximum bytes of one message, which may contain a process's whole input in base64."""

_HEAD = struct.Struct(">BI")
_COMPRESSED, _LAST = 1, 2


class Code(StrEnum):
    CANCELED = "canceled"
    UNKNOWN = "unknown"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    ABORTED = "aborted"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    UNAUTHENTICATED = "unauthenticated"


STATUS = {
    Code.CANCELED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class ConnectError(Exception):
    """An error of the protocol."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def document(self) -> dict[str, str]:
        return {"code": self.code.value, "message": self.message}


def as_connect(error: errors.PaddockError) -> ConnectError:
    """The default code for each kind of error; callers may choose another."""
    match error:
        case errors.NotFound():
            code = Code.NOT_FOUND
        case errors.PathDenied() | errors.Forbidden():
            code = Code.PERMISSION_DENIED
        case (
            errors.InsufficientStorage()
            | errors.SandboxExhausted()
            | errors.TooManyRequests()
            | errors.PayloadTooLarge()
        ):
            code = Code.RESOURCE_EXHAUSTED
        case errors.Invalid() | errors.MalformedRequest() | errors.PathConflict():
            code = Code.INVALID_ARGUMENT
        case errors.Conflict():
            code = Code.FAILED_PRECONDITION
        case errors.Unavailable():
            code = Code.UNAVAILABLE
        case errors.Unsupported():
            code = Code.UNIMPLEMENTED
        case _:
            code = Code.INTERNAL
    return ConnectError(code, error.message)


def encode(document: Any) -> bytes:
    """Escaped to ASCII: JavaScript clients decode every network chunk by itself."""
    return json.dumps(document, separators=(",", ":")).encode("ascii", "backslashreplace")


def envelope(message: bytes) -> bytes:
    return _HEAD.pack(0, len(message)) + message


def end_of_stream(error: ConnectError | None = None) -> bytes:
    message = b"{}" if error is None else encode({"error": error.document()})
    return _HEAD.pack(_LAST, len(message)) + message


async def parse(message: bytes, workers: Workers) -> dict[str, Any]:
    try:
        found = await large_json.loads(message or b"{}", workers, json_limits.MAX_REQUEST_VALUES)
    except errors.Invalid as problem:
        raise ConnectError(Code.INVALID_ARGUMENT, problem.message) from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConnectError(Code.INVALID_ARGUMENT, "the message is not a JSON object")
    return found


async def unary_message(body: Body, workers: Workers) -> dict[str, Any]:
    return await parse(await body.whole(MAX_MESSAGE, _too_large()), workers)


async def stream_messages(body: Body, workers: Workers) -> AsyncIterator[dict[str, Any]]:
    """Messages one by one; none is kept longer than needed."""
    held = bytearray()
    async for chunk in body:
        held += chunk
        while len(held) >= _HEAD.size:
            flags, length = _HEAD.unpack_from(held)
            if length > MAX_MESSAGE:
                raise _too_large()
            if len(held) < _HEAD.size + length:
                break
            message = bytes(memoryview(held)[_HEAD.size : _HEAD.size + length])
            del held[: _HEAD.size + length]
            if flags & _COMPRESSED:
                raise ConnectError(Code.UNIMPLEMENTED, "compressed messages are not understood here")
            if flags & _LAST:
                return
            await give_turn()
            yield await parse(message, workers)
    if held:
        raise ConnectError(Code.INVALID_ARGUMENT, "the stream ended within a message")


async def only_message(body: Body, workers: Workers) -> dict[str, Any]:
    """The request of a server stream. The end of the body is not awaited, because some clients leave it open."""
    messages = stream_messages(body, workers)
    try:
        async for message in messages:
            return message
    finally:
        await messages.aclose()  # type: ignore[attr-defined]
    raise ConnectError(Code.INVALID_ARGUMENT, "the request holds no message")


def _too_large() -> ConnectError:
    return ConnectError(Code.RESOURCE_EXHAUSTED, f"a message may have at most {MAX_MESSAGE} bytes")
