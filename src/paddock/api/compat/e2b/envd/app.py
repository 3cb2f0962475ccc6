"""The app for port 49983 of every sandbox, in place of envd.

Checks the sandbox first (missing: 502 with the text that clients look for), then the token, then handles the request. A
sandbox is resumed only for holders of its token, and for health checks, as in E2B.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock import errors, ids, json_limits
from paddock.accounts import byte_budget
from paddock.api.auth import RateLimiter
from paddock.api.byte_accounting import holding_of
from paddock.api.compat.e2b.envd import connect, files
from paddock.api.compat.e2b.envd.connect import STATUS, STREAM, STREAM_HEADERS, UNARY, Code, ConnectError, as_connect
from paddock.api.compat.e2b.envd.fields import Fields
from paddock.api.compat.e2b.envd.filesystem import FilesystemService
from paddock.api.compat.e2b.envd.http import ClientGone, EnvdExchange, HttpError
from paddock.api.compat.e2b.envd.inside import EnvdContext
from paddock.api.compat.e2b.envd.process import ProcessService
from paddock.api.compat.e2b.envd.reports import Reports
from paddock.api.compat.e2b.envd.signatures import READ, WRITE, Signed, Signers
from paddock.api.compat.e2b.envd.streaming import StreamCut, timeout_of
from paddock.api.compat.e2b.envd.users import PasswdAccounts
from paddock.api.compat.e2b.envd.watchers import Watchers
from paddock.gateway.asgi_extensions import forwarded, prove
from paddock.models import State
from paddock.server.context import ServerContext
from paddock.store.records import SandboxRow

_UNAUTHORIZED = "unauthorized access, please provide a valid access token or method signing if supported"
_INTERNAL = frozenset({"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"})
_OPERATIONS = {"GET": READ, "HEAD": READ, "POST": WRITE}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    "Access-Control-Max-Age": "7200",
}
_MAX_JSON = 1 << 20

Unary = Callable[[EnvdContext, Fields], Awaitable[dict[str, object] | bytes]]
"""Bytes are JSON already."""
ServerStreaming = Callable[[EnvdContext, Fields], Awaitable[None]]
ClientStreaming = Callable[[EnvdContext, AsyncIterator[Fields]], Awaitable[dict[str, object]]]
Route = Callable[[EnvdContext], Awaitable[None]]


def create_envd(context: ServerContext, limiter: RateLimiter) -> ASGIApp:
    return Envd(context, limiter)


class Envd:
    def __init__(self, context: ServerContext, limiter: RateLimiter) -> None:
        self._context = context
        self._limiter = limiter
        self._accounts = PasswdAccounts()
        self._signers = Signers(context)
        process, filesystem, watchers, reports = ProcessService(), FilesystemService(), Watchers(), Reports()
        self._unary: dict[str, Unary] = {
            "/process.Process/List": process.list,
            "/process.Process/SendInput": process.send_input,
            "/process.Process/CloseStdin": process.close_stdin,
            "/process.Process/SendSignal": process.send_signal,
            "/process.Process/Update": process.update,
            "/filesystem.Filesystem/Stat": filesystem.stat,
            "/filesystem.Filesystem/MakeDir": filesystem.make_dir,
            "/filesystem.Filesystem/Move": filesystem.move,
            "/filesystem.Filesystem/ListDir": filesystem.list_dir,
            "/filesystem.Filesystem/Remove": filesystem.remove,
            "/filesystem.Filesystem/CreateWatcher": watchers.create,
            "/filesystem.Filesystem/GetWatcherEvents": watchers.events,
            "/filesystem.Filesystem/RemoveWatcher": watchers.remove,
        }
        self._server_streams: dict[str, ServerStreaming] = {
            "/process.Process/Start": process.start,
            "/process.Process/Connect": process.connect,
            "/filesystem.Filesystem/WatchDir": watchers.stream,
        }
        self._client_streams: dict[str, ClientStreaming] = {"/process.Process/StreamInput": process.stream_input}
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "/health"): reports.health,
            ("GET", "/metrics"): reports.metrics,
            ("GET", "/envs"): reports.envs,
            ("GET", "/files"): files.download,
            ("HEAD", "/files"): files.download,
            ("POST", "/files"): files.upload,
            ("POST", "/files/compose"): _compose,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "There are no WebSockets on this port."})
            return
        exchange = EnvdExchange(scope, receive, send)
        try:
            await self._answer(exchange)
        except ClientGone:
            return
        except StreamCut:
            await exchange.cut()
        except HttpError as error:
            await _tell(exchange, error.status, {"code": error.status, "message": error.message})
        except errors.SandboxElsewhere as elsewhere:
            if not await forwarded(scope, elsewhere, None):
                await self._fail(exchange, elsewhere)
        except errors.PaddockError as error:
            await self._fail(exchange, error)

    async def _answer(self, exchange: EnvdExchange) -> None:
        if exchange.method == "OPTIONS":
            asked = exchange.headers.get("access-control-request-headers", "*")
            await exchange.respond(204, headers={**_PREFLIGHT, "Access-Control-Allow-Headers": asked[:4000]})
            return
        sandbox = await self._sandbox(exchange)
        if sandbox is None or sandbox.state in {State.DELETING, State.DELETED, State.FAILED}:
            await _not_found(exchange)
            return
        if exchange.path in _INTERNAL:
            raise HttpError(404, f"{exchange.path} is not available from outside the sandbox")
        self._check(exchange, sandbox)
        if exchange.path != "/health":
            owner = await self._context.accounts.stand_for(sandbox.owner_id)
            prove(exchange.scope, owner)
            self._limiter.take(owner)
            holding_of(exchange.scope, self._context.in_flight).belongs_to(sandbox.owner_id)
        try:
            async with self._context.controller.use_key(sandbox.key, wake=True) as use:
                await self._serve(EnvdContext(self._context, use, exchange, self._accounts))
        except (errors.SandboxNotFound, errors.SandboxGone, errors.SandboxFailed, errors.Asleep):
            if exchange.started:
                raise StreamCut from None
            await _not_found(exchange)

    # Which sandbox, and who may access it

    async def _sandbox(self, exchange: EnvdExchange) -> SandboxRow | None:
        destination = exchange.scope.get("state", {}).get("destination")
        if destination is None:
            return await self._signed_for(exchange)
        if ids.is_sandbox_id(destination.key):
            return await self._by_id(exchange, destination.key)
        try:
            return await self._context.controller.by_key(destination.key)
        except errors.SandboxNotFound:
            return None

    async def _by_id(self, exchange: EnvdExchange, sandbox_id: str) -> SandboxRow:
        """Sandbox ids can be guessed, so a caller without permission does not learn whether one exists."""
        sandbox = await self._context.row_cache.get(sandbox_id)
        token = exchange.headers.get("x-access-token", "")
        if sandbox is not None and self._context.tokens.check_access(sandbox.key, token):
            return sandbox
        raise HttpError(401, _UNAUTHORIZED)

    async def _signed_for(self, exchange: EnvdExchange) -> SandboxRow:
        """A signed URL identifies its sandbox only by its signature."""
        signed = _signed(exchange)
        if exchange.path != "/files" or signed is None:
            raise HttpError(400, "the request does not name a sandbox")
        key = await self._signers.find(signed)
        if key is None:
            raise HttpError(401, "invalid signature")
        return await self._context.controller.by_key(key)

    def _check(self, exchange: EnvdExchange, sandbox: SandboxRow) -> None:
        """Before the sandbox is resumed. A valid signature does not override a wrong token."""
        if exchange.path == "/health":
            return
        token = exchange.headers.get("x-access-token")
        if token is not None and self._context.tokens.check_access(sandbox.key, token):
            return
        if token is not None or exchange.path != "/files":
            raise HttpError(401, _UNAUTHORIZED)
        signed = _signed(exchange)
        if signed is None:
            raise HttpError(401, "missing signature query parameter")
        if not signed.fits(self._context.tokens.access(sandbox.key)):
            raise HttpError(401, "invalid signature")
        if signed.expired(self._context.clock.now()):
            raise HttpError(401, "signature is already expired")

    # Dispatch

    async def _serve(self, inside: EnvdContext) -> None:
        exchange = inside.exchange
        path = exchange.path
        if (route := self._routes.get((exchange.method, path))) is not None:
            await route(inside)
        elif any(path == known for _, known in self._routes):
            raise HttpError(405, f"{exchange.method} is not possible on {path}")
        elif path.count("/") == 2 and "." in path.split("/")[1]:
            await self._call(inside)
        else:
            raise HttpError(404, f"there is no {path[:200]}")

    async def _call(self, inside: EnvdContext) -> None:
        exchange, path = inside.exchange, inside.exchange.path
        if exchange.method != "POST":
            raise HttpError(405, "remote procedures are called by POST")
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        streaming = path in self._server_streams or path in self._client_streams
        if not streaming and path not in self._unary:
            await _refuse(exchange, ConnectError(Code.UNIMPLEMENTED, f"{path} is not implemented"), kind == STREAM)
        elif kind != (STREAM if streaming else UNARY):
            await exchange.respond(415, headers={"Accept-Post": STREAM if streaming else UNARY})
        elif not streaming:
            await _unary(inside, self._unary[path])
        elif path in self._client_streams:
            await _client_stream(inside, self._client_streams[path])
        else:
            await _server_stream(inside, self._server_streams[path])

    async def _fail(self, exchange: EnvdExchange, error: errors.PaddockError) -> None:
        if exchange.started:
            raise error
        if isinstance(error, errors.SandboxBusy):
            message = "The sandbox is still transitioning. Try again in a moment."
            await _tell(exchange, 409, {"sandboxId": _name(exchange), "message": message, "code": 409})
            return
        status = 400 if error.status == 422 else error.status
        await _tell(exchange, status, {"code": status, "message": error.message})


async def _unary(inside: EnvdContext, method: Unary) -> None:
    exchange = inside.exchange
    try:
        async with asyncio.timeout(timeout_of(inside)):
            answer = await method(inside, Fields(await connect.unary_message(exchange.body, inside.workers)))
    except ConnectError as error:
        await _refuse(exchange, error, streaming=False)
    except TimeoutError:
        await _refuse(exchange, _late(), streaming=False)
    except (errors.SandboxNotFound, errors.SandboxBusy):
        raise
    except errors.PaddockError as error:
        await _refuse(exchange, as_connect(error), streaming=False)
    else:
        body = answer if isinstance(answer, bytes) else connect.encode(answer)
        await exchange.respond(200, body, {"Content-Type": UNARY})


async def _server_stream(inside: EnvdContext, method: ServerStreaming) -> None:
    context, owner_id = inside.context, inside.sandbox.owner_id
    try:
        inside.holding.reserve(byte_budget.STREAM)
        with context.streams.enter(owner_id, await context.accounts.quota_for(owner_id)):
            await method(inside, Fields(await connect.only_message(inside.exchange.body, inside.workers)))
    except (errors.TooManyRequests, errors.Overloaded) as error:
        if inside.exchange.started:
            raise
        await _refuse(inside.exchange, as_connect(error), streaming=True)
    except ConnectError as error:
        await _refuse(inside.exchange, error, streaming=True)


async def _client_stream(inside: EnvdContext, method: ClientStreaming) -> None:
    exchange = inside.exchange
    messages = connect.stream_messages(exchange.body, inside.workers)
    try:
        async with asyncio.timeout(timeout_of(inside)):
            answer = await method(inside, (Fields(message) async for message in messages))
    except ConnectError as error:
        await _refuse(exchange, error, streaming=True)
    except TimeoutError:
        await _refuse(exchange, _late(), streaming=True)
    except (errors.SandboxNotFound, errors.SandboxBusy):
        raise
    except errors.PaddockError as error:
        await _refuse(exchange, as_connect(error), streaming=True)
    else:
        body = connect.envelope(connect.encode(answer)) + connect.end_of_stream()
        await exchange.respond(200, body, STREAM_HEADERS)


async def _refuse(exchange: EnvdExchange, error: ConnectError, streaming: bool) -> None:
    if streaming and error.code is not Code.UNIMPLEMENTED:
        await exchange.respond(200, connect.end_of_stream(error), STREAM_HEADERS)
    else:
        await exchange.respond(STATUS[error.code], connect.encode(error.document()), {"Content-Type": UNARY})


async def _compose(inside: EnvdContext) -> None:
    body = await inside.exchange.body.whole(_MAX_JSON, HttpError(413, f"at most {_MAX_JSON} bytes can be taken"))
    try:
        document = await json_limits.loads_large(body, json_limits.MAX_REQUEST_VALUES)
    except errors.Invalid as problem:
        raise HttpError(400, problem.message) from None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise HttpError(400, "the body is not a JSON object")
    await files.compose(inside, document)


async def _tell(exchange: EnvdExchange, status: int, document: dict[str, Any]) -> None:
    if exchange.started:
        return
    await exchange.respond_json(status, document)


async def _not_found(exchange: EnvdExchange) -> None:
    document = {"sandboxId": _name(exchange), "message": "The sandbox was not found", "code": 502}
    await _tell(exchange, 502, document)


def _name(exchange: EnvdExchange) -> str:
    destination = exchange.scope.get("state", {}).get("destination")
    return "" if destination is None else str(destination.key)


def _signed(exchange: EnvdExchange) -> Signed | None:
    query = exchange.query
    signature = query.get("signature")
    if signature is None:
        return None
    operation = _OPERATIONS.get(exchange.method, exchange.method)
    user = query.get("username", "")
    return Signed(query.get("path", ""), operation, user, signature, query.get("signature_expiration"))


def _late() -> ConnectError:
    return ConnectError(Code.DEADLINE_EXCEEDED, "the time that the client gave for this call is over")
