"""The Connect protocol with its JSON codec: messages in and out, and failures in the place where a client looks.

A unary call is one JSON object each way, and a failure is an HTTP status with the code's name in the body. A stream is
a row of envelopes (a flag byte, four bytes of length, JSON); it is HTTP 200 whatever happens, and the last envelope,
which alone has the flag 2, says how it ended.
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
"""Of one message: the input of a process comes in one, base64 and all."""

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
    """A failure in the protocol's own words."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def document(self) -> dict[str, str]:
        return {"code": self.code.value, "message": self.message}


def as_connect(error: errors.PaddockError) -> ConnectError:
    """What is wrong inside the sandbox, by its kind; callers who know better say so themselves."""
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
    """One after the other, none held longer than it is used."""
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
    """Of a server stream, whose client says one thing. More is not waited for: some clients leave their side open."""
    messages = stream_messages(body, workers)
    try:
        async for message in messages:
            return message
    finally:
        await messages.aclose()  # type: ignore[attr-defined]
    raise ConnectError(Code.INVALID_ARGUMENT, "the request holds no message")


def _too_large() -> ConnectError:
    return ConnectError(Code.RESOURCE_EXHAUSTED, f"a message may have at most {MAX_MESSAGE} bytes")
