"""Calls to the browser server in a sandbox. Its answers are untrusted: sizes and types are checked here."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock import base64_slices, errors, large_json
from paddock.browser import PORT
from paddock.machine.base import Connection
from paddock.workers import Workers

MAX_ANSWER = 32 << 20
SECONDS = 150.0
"""Longer than any timeout of the server in the sandbox."""
_CHUNK = 1 << 18
_MAX_CHUNKS = 100_000
_MAX_SIZE_LINE = 100
"""Maximum bytes of a chunk's size line."""
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class BrowserRefused(errors.PaddockError):
    """The browser reported an error. The message is for the caller and includes the next step."""

    status = 422
    code = "browser_refused"


@dataclass(frozen=True, slots=True)
class BrowserReply:
    fields: Mapping[str, Any]
    picture: bytes | None
    notes: tuple[str, ...]

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


async def call(
    reach: Callable[[int], Awaitable[Connection]], workers: Workers, action: str, args: Mapping[str, Any]
) -> BrowserReply:
    """Raises BrowserRefused with the browser's message, BrowserFailed for an invalid or missing answer."""
    given = {name: value for name, value in args.items() if value is not None}
    body = json.dumps({"action": action, "args": given}).encode()
    head = (
        f"POST /call HTTP/1.1\r\nHost: localhost:{PORT}\r\nContent-Type: application/json\r\n"
        f"X-Paddock-Browser: call\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    connection = await reach(PORT)
    try:
        async with asyncio.timeout(SECONDS):
            await connection.write(head.encode() + body)
            return await _read(await _all(connection), workers)
    except TimeoutError:
        raise errors.BrowserFailed(
            f"The browser did not answer within {SECONDS:g} s. browser_close ends it; the next call starts it again."
        ) from None
    finally:
        await connection.close()


async def _all(connection: Connection) -> bytes:
    said = bytearray()
    while piece := await connection.read(_CHUNK):
        said += piece
        if len(said) > MAX_ANSWER:
            raise errors.BrowserFailed(f"The browser's answer is over {MAX_ANSWER >> 20} MB.")
    return bytes(said)


async def _read(said: bytes, workers: Workers) -> BrowserReply:
    head, _, body = said.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    try:
        if b"\r\ntransfer-encoding: chunked" in head.lower():
            body = _unchunked(body)
        document = await large_json.loads(body, workers)
        if status is None or status[1] != b"200" or "error" in document:
            raise BrowserRefused(str(document["error"])[:20_000])
        result = dict(document["result"])
        taken = result.pop("picture", None)
        notes = tuple(str(note)[:2000] for note in result.pop("notes", ()))
        return BrowserReply(result, await base64_slices.decode(str(taken)) if taken else None, notes)
    except (ValueError, TypeError, KeyError, errors.Invalid):
        raise errors.BrowserFailed("The browser's server in the sandbox answered with something unexpected.") from None


def _unchunked(body: bytes) -> bytes:
    whole, at = bytearray(), 0
    for _ in range(_MAX_CHUNKS):
        end = body.find(b"\r\n", at, at + _MAX_SIZE_LINE)
        if end < 0:
            raise ValueError("no size of a chunk")
        length = int(body[at:end].partition(b";")[0], 16)
        if length == 0:
            return bytes(whole)
        if length < 0 or len(body) < end + 2 + length:
            raise ValueError("cut off")
        whole += body[end + 2 : end + 2 + length]
        at = end + 2 + length + 2
    raise ValueError("too many chunks")
