"""State changes as Daytona's SDKs listen for them: Socket.IO 5 over Engine.IO 4, by WebSocket alone.

The server sends and does not listen, but for what keeps a connection alive. Changes made by another server on the same
database are told a second later.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect, WebSocketState

from paddock import errors
from paddock.accounts.byte_budget import STREAM
from paddock.api.auth import Authenticated, admit_with
from paddock.api.compat.daytona.control.shapes import state_of
from paddock.api.sockets import receive_text, run_both
from paddock.lifecycle.bus import RowChanges

router = APIRouter()

_ENGINE = "4"
_OPEN, _CLOSE, _PING, _PONG, _MESSAGE = "0", "1", "2", "3", "4"
_CONNECT, _DISCONNECT, _EVENT, _REFUSE = "40", "41", "42", "44"
_PING_INTERVAL_S, _PING_TIMEOUT_S = 25.0, 20.0
_CONNECT_TIMEOUT_S = 20.0
_MAX_PACKET = 16_384


@router.websocket("/socket.io/")
async def notifications(websocket: WebSocket) -> None:
    if websocket.query_params.get("EIO") != _ENGINE:
        await websocket.send_denial_response(Response(b'{"code":5,"message":"Unsupported protocol version"}', 400))
        return
    await websocket.accept()
    with suppress(WebSocketDisconnect):
        try:
            await _serve(websocket)
        except _ConnectionEnded:
            await websocket.close()
        except TimeoutError:
            await websocket.close(1008)
        except RuntimeError:
            # How starlette says that the client left while we were sending.
            if WebSocketState.DISCONNECTED not in (websocket.client_state, websocket.application_state):
                raise


class _ConnectionEnded(Exception):
    """The client, or the protocol, asks for the end of the connection."""


async def _serve(websocket: WebSocket) -> None:
    greeting = {
        "sid": secrets.token_urlsafe(15),
        "upgrades": [],
        "pingInterval": round(_PING_INTERVAL_S * 1000),
        "pingTimeout": round(_PING_TIMEOUT_S * 1000),
        "maxPayload": _MAX_PACKET,
    }
    await websocket.send_text(_OPEN + json.dumps(greeting))
    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
        token = _token(await _packet(websocket))
    try:
        caller = await admit_with(websocket, token)
        caller.holding.reserve(STREAM)
        counted = caller.context.streams.enter(caller.who.user_id, caller.who.quota)
        with counted, caller.context.bus.follow(caller.who.user_id) as changes:
            await caller.context.peer_changes.look()
            await websocket.send_text(_CONNECT + json.dumps({"sid": secrets.token_urlsafe(15)}))
            await run_both(_tell(websocket, caller, changes), _listen(websocket))
    except errors.PaddockError as problem:
        await websocket.send_text(_REFUSE + json.dumps({"message": problem.message}))
        raise _ConnectionEnded from problem


async def _tell(websocket: WebSocket, caller: Authenticated, changes: RowChanges) -> None:
    loop = asyncio.get_running_loop()
    ping_at = loop.time() + _PING_INTERVAL_S
    while True:
        try:
            async with asyncio.timeout_at(ping_at):
                sandbox = await changes.next()
        except TimeoutError:
            ping_at = loop.time() + _PING_INTERVAL_S
            await websocket.send_text(_PING)
            continue
        state = state_of(sandbox, caller.context.clock.now())
        told: list[Any] = ["sandbox.state.updated", {"sandbox": {"id": sandbox.key, "state": state}, "newState": state}]
        await websocket.send_text(_EVENT + json.dumps(told))


async def _listen(websocket: WebSocket) -> None:
    """Answer pings until the connection ends. A client that does not answer pings is disconnected."""
    while True:
        async with asyncio.timeout(_PING_INTERVAL_S + _PING_TIMEOUT_S):
            packet = await _packet(websocket)
        if packet.startswith((_CLOSE, _DISCONNECT)):
            raise _ConnectionEnded


async def _packet(websocket: WebSocket) -> str:
    try:
        packet = await receive_text(websocket)
    except errors.Invalid as problem:
        raise _ConnectionEnded from problem
    if len(packet) > _MAX_PACKET:
        raise _ConnectionEnded
    return packet


def _token(packet: str) -> str:
    """The token in the packet that requests the connection: the client's ``auth`` field."""
    if not packet.startswith(_CONNECT):
        raise _ConnectionEnded
    try:
        auth = json.loads(packet.removeprefix(_CONNECT) or "{}")
    except (ValueError, RecursionError):
        raise _ConnectionEnded from None
    token = auth.get("token") if isinstance(auth, dict) else None
    return token if isinstance(token, str) else ""
