"""WebSockets: close codes for failures, and concurrent reading and writing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from paddock import errors
from paddock.api.failures import as_error

_MAX_REASON = 123
"""Maximum bytes of a close frame's reason (RFC 6455, 5.5)."""


def close_code(error: errors.PaddockError) -> int:
    """4401, 4404, 4422…: 4000 plus the HTTP status. Server errors are 1011."""
    return 1011 if error.status == 500 else 4000 + error.status


async def close_socket(
    scope: Scope, receive: Receive, send: Send, error: errors.PaddockError, *, accepted: bool
) -> None:
    """Accept first: a refused handshake loses the code and the reason."""
    if not accepted:
        await receive()
        await send({"type": "websocket.accept", "headers": []})
    reason = f"{error.code}: {error.message}".encode()[:_MAX_REASON].decode(errors="ignore")
    await send({"type": "websocket.close", "code": close_code(error), "reason": reason})


async def refuse_socket(websocket: WebSocket, problem: Exception) -> None:
    """The exception handler of every WebSocket."""
    if websocket.application_state is WebSocketState.DISCONNECTED:
        return
    accepted = websocket.application_state is WebSocketState.CONNECTED
    receive: Receive = websocket.receive
    send: Send = websocket.send
    await close_socket(websocket.scope, receive, send, as_error(problem), accepted=accepted)


async def receive_text(websocket: WebSocket) -> str:
    """From a client that may only send text: binary frames are a client error."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    if text is None:
        raise errors.Invalid("Send text, not bytes.")
    return text


async def run_both(outgoing: Coroutine[Any, Any, None], incoming: Coroutine[Any, Any, None]) -> None:
    """Run both directions concurrently until one ends; the other is then cancelled and awaited."""
    tasks = {asyncio.create_task(outgoing), asyncio.create_task(incoming)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        if not task.cancelled():
            task.result()
