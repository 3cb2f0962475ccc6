"""A language server running in a sandbox, used over its standard streams (LSP 3.17, JSON-RPC 2.0)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

import structlog

from paddock import errors, large_json
from paddock.accounts.byte_budget import SMALL, Reservation
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.loop_turns import give_turn
from paddock.machine.base import Machine, ProcessSpec, Stream
from paddock.workers import Workers

log = structlog.get_logger(__name__)

_ANSWER_SECONDS = 60.0
_MAX_MESSAGE = 16 << 20
_METHOD_NOT_FOUND = -32601
_MAX_HEAD = 8192
_CAPABILITIES: Mapping[str, Any] = {
    "textDocument": {
        "synchronization": {},
        "completion": {"completionItem": {"snippetSupport": False}},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
    },
    "workspace": {"symbol": {}, "workspaceFolders": True, "configuration": True},
}


class MethodNotFound(DaytonaError):
    """The language server does not support this request."""


class LanguageServer:
    """Belongs to this server process: after a restart clients have to start it again."""

    def __init__(
        self, machine: Machine, spec: ProcessSpec, holding: Reservation, workers: Workers, owner_id: str
    ) -> None:
        """``holding``: reserves memory for incomplete messages."""
        self.owner_id = owner_id
        self._holding = holding
        self._workers = workers
        self._machine = machine
        self._spec = spec
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._listening: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self.open_documents: set[str] = set()

    @property
    def alive(self) -> bool:
        return self._listening is not None and not self._listening.done()

    async def start(self, root: str) -> None:
        await self._machine.spawn(self._spec)
        self._listening = asyncio.create_task(self._listen(), name="language server")
        folder = {"uri": f"file://{root}", "name": root.rpartition("/")[2] or root}
        await self.ask(
            "initialize",
            {
                "processId": None,
                "rootUri": folder["uri"],
                "rootPath": root,
                "workspaceFolders": [folder],
                "capabilities": _CAPABILITIES,
            },
        )
        await self.tell("initialized", {})

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            raise DaytonaError(504, f"the language server did not answer {method} in time", source=DAEMON) from None
        finally:
            self._waiting.pop(number, None)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def stop(self) -> None:
        with suppress(errors.PaddockError):
            await self._machine.signal(self._spec.process_id, signal.SIGKILL)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps(message).encode()
        try:
            async with self._writing:
                data = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                await self._machine.write_stdin(self._spec.process_id, data)
        except errors.PaddockError as problem:
            raise _ended(problem.message) from None

    async def _listen(self) -> None:
        """Read messages until its end. Pending requests then fail."""
        try:
            async for message in self._messages():
                await self._hear(message)
        except (errors.PaddockError, DaytonaError, ValueError) as problem:
            log.info("connection to a language server lost", problem=str(problem)[:200])
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_ended("the language server has ended"))

    async def _hear(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if "method" in message:
            if "id" in message:  # a configuration request: we have no settings
                items = (message.get("params") or {}).get("items")
                result = [None] * len(items) if isinstance(items, list) else None
                await self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})
            return
        answer = self._waiting.get(message.get("id", -1))
        if answer is None or answer.done():
            return
        if message.get("error"):
            answer.set_exception(_refusal(message["error"]))
        else:
            answer.set_result(message.get("result"))

    async def _messages(self) -> AsyncGenerator[Any, None]:
        held = bytearray()
        chunks = self._machine.follow(self._spec.process_id)
        try:
            async for chunk in chunks:
                if chunk.stream is not Stream.STDOUT:
                    continue
                held += chunk.data
                self._holding.reserve(len(held))
                while (end := held.find(b"\r\n\r\n", 0, _MAX_HEAD)) >= 0:
                    size = _length(bytes(held[:end]))
                    if len(held) < end + 4 + size:
                        break
                    message = bytes(memoryview(held)[end + 4 : end + 4 + size])
                    del held[: end + 4 + size]
                    await give_turn()
                    yield await large_json.loads(message, self._workers)
                if len(held) <= SMALL:
                    self._holding.release()
                if end < 0 and len(held) > _MAX_HEAD:
                    raise ValueError("the language server does not keep to the protocol")
        finally:
            self._holding.release()
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            size = int(value)
            if size <= _MAX_MESSAGE:
                return size
    raise ValueError("the language server does not keep to the protocol")


def _refusal(error: Any) -> DaytonaError:
    told = error if isinstance(error, dict) else {}
    kind = MethodNotFound if told.get("code") == _METHOD_NOT_FOUND else DaytonaError
    return kind(500, f"the language server says: {str(told.get('message', 'it failed'))[:500]}", source=DAEMON)


def _ended(why: str) -> DaytonaError:
    return DaytonaError(400, f"LSP server not initialized: {why}", "LSP_SERVER_NOT_INITIALIZED", DAEMON)
