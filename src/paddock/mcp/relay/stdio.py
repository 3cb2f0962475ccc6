"""A server that runs in the sandbox and is used over its standard input and output.

Its process belongs to the machine: it keeps running when this server stops, and the next one adopts it, because its id
is derived from its definition. Request ids include a session id, because a late response may belong to an earlier
session. Output lines that are not messages are ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import structlog
from mcp.shared.message import SessionMessage

from paddock import errors
from paddock.loop_turns import give_turn
from paddock.machine.base import Machine, ProcessInfo, ProcessSpec, Stream
from paddock.machine.lines import LineBuffer
from paddock.mcp.relay import incoming
from paddock.mcp.relay.definitions import Definition
from paddock.memory import MemoryReservation

log = structlog.get_logger(__name__)

_ERROR_TAIL_BYTES = 2000
_MAX_ID_LENGTH = 64
"""Of one of this session's requests, as returned."""
_UV = " It comes with uv: run `pip install uv` in the sandbox; the server is then started automatically."
_NODE = (
    " It comes with Node.js: run `sudo apt-get install -y nodejs npm` in the sandbox, or use a template that has it."
)
_HINTS = {"uv": _UV, "uvx": _UV, "node": _NODE, "npm": _NODE, "npx": _NODE}
"""What to install if the launcher of many published servers is missing."""
_LABEL = re.compile(r"mcp server (\S+) #(\d{1,9}): ")


class ServerExited(errors.Conflict):
    """The process has ended, or cannot be used."""


async def start(machine: Machine, name: str, definition: Definition) -> ProcessInfo:
    """The running process, or a new one. A missing program raises an error at once."""
    number, process = await latest(machine, name, definition)
    if process is not None and process.running:
        return process
    spec = ProcessSpec(
        process_id=_process_id(machine, name, definition, number + 1),
        argv=definition.argv,
        cwd=definition.cwd,
        env=definition.env,
        user=definition.user,
        stdin=True,
        label=f"mcp server {name} #{number + 1}: {definition.argv[0]}",
        strict=True,
    )
    try:
        return await machine.spawn(spec)
    except errors.Invalid as problem:
        hint = _HINTS.get(definition.argv[0], "")
        raise errors.Invalid(f"{definition.argv[0]!r}: {problem.message}{hint}") from None


async def latest(machine: Machine, name: str, definition: Definition) -> tuple[int, ProcessInfo | None]:
    """The number and process of its latest start. The process id is checked, because any process may be given the
    label."""
    found: tuple[int, ProcessInfo | None] = (0, None)
    for process in await machine.processes():
        label = _LABEL.match(process.label)
        if label is None or label[1] != name or int(label[2]) <= found[0]:
            continue
        if process.process_id == _process_id(machine, name, definition, int(label[2])):
            found = (int(label[2]), process)
    return found


class StdioWire:
    """One session with the process. ``last_words`` is its latest standard error."""

    def __init__(self, machine: Machine, process: ProcessInfo, memory: MemoryReservation) -> None:
        self._machine = machine
        self._process = process
        self._memory = memory
        self._long: set[str] = set()
        """Pending requests whose responses may be large."""
        self._session = secrets.token_hex(4)
        self._error = b""
        self.ended = asyncio.Event()

    @property
    def last_words(self) -> str:
        return "\n".join(self._error.decode(errors="replace").strip().splitlines()[-5:])

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """The streams for the SDK's client."""
        to_client, received = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        from_client, sent = anyio.create_memory_object_stream[SessionMessage](16)
        reading = asyncio.create_task(self._read(to_client), name="mcp server's output")
        writing = asyncio.create_task(self._write(sent), name="mcp server's input")
        try:
            yield received, from_client
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            for stream in (received, to_client, from_client, sent):
                await stream.aclose()

    async def _read(self, to_client: Any) -> None:
        lines = LineBuffer()
        process = self._process
        try:
            async for chunk in self._machine.follow(process.process_id, process.stdout_size, process.stderr_size):
                if chunk.stream is Stream.STDERR:
                    self._error = (self._error + chunk.data)[-_ERROR_TAIL_BYTES:]
                    continue
                for each in lines.feed(chunk.data):
                    await give_turn()
                    if (message := await self._message(each.strip())) is not None:
                        await to_client.send(message)
                if len(lines) > incoming.MAX_ANSWER:
                    raise ServerExited(f"It wrote a line of over {incoming.MAX_ANSWER} bytes.")
                self._memory.release()
                self._memory.reserve(incoming.COPIES * len(lines))
        except (ServerExited, errors.TooManyBytes, errors.Overloaded) as problem:
            self._error = problem.message.encode()
        except errors.PaddockError:  # the machine is gone or paused; the next use reports it
            pass
        finally:
            self._memory.release()
            self.ended.set()
            await to_client.aclose()

    async def _write(self, sent: Any) -> None:
        async for message in sent:
            document = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if isinstance(message.message, types.JSONRPCRequest):
                document["id"] = self._ours(document["id"])
                if document["method"] in incoming.LONG:
                    self._long.add(document["id"])
            elif document.get("method") == "notifications/cancelled":
                document["params"]["requestId"] = self._ours(document["params"].get("requestId"))
                self._long.discard(document["params"]["requestId"])
            try:
                await self._machine.write_stdin(self._process.process_id, json.dumps(document).encode() + b"\n")
            except errors.PaddockError:
                self.ended.set()  # the process has closed its input
                return

    def _ours(self, given: Any) -> str:
        return f"{self._session}:{json.dumps(given)}"

    async def _message(self, line: bytes) -> SessionMessage | None:
        if not line.startswith(b"{"):
            return None
        asked = self._asked(line)
        try:
            await self._check(line, incoming.MAX_ANSWER if asked in self._long else incoming.MAX_OTHER)
        except errors.PaddockError as problem:
            log.warning("a message of an MCP server is too large", process_id=self._process.process_id)
            return self._refusal(asked, problem)
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                session, _, given = str(message.id).partition(":")
                if session != self._session:
                    return None
                self._long.discard(str(message.id))
                message = message.model_copy(update={"id": json.loads(given)})
        except ValueError:  # of pydantic or json
            return None
        return SessionMessage(message)

    async def _check(self, line: bytes, most: int) -> None:
        """Raises for a message that the SDK must not parse."""
        if len(line) > most:
            raise incoming.too_large(most)
        self._memory.reserve(incoming.COPIES * len(line))
        await incoming.check(line)

    def _asked(self, line: bytes) -> str | None:
        """The request of this session that the line answers, found without parsing all of it."""
        sign, found = b'"%b:' % self._session.encode(), None
        for begin in {line.find(sign), line.rfind(sign)} - {-1}:  # a response may quote its request
            end = line.find(b'"', begin + 1, begin + _MAX_ID_LENGTH)
            found = line[begin + 1 : end].decode(errors="replace") if end >= 0 else found
            if found in self._long:
                break
        return found

    def _refusal(self, asked: str | None, problem: errors.PaddockError) -> SessionMessage | None:
        """An error response, so that the waiting request ends."""
        if asked is None:
            return None
        self._long.discard(asked)
        refused = types.jsonrpc_message_adapter.validate_json(incoming.refusal(problem), by_name=False)
        try:
            given = json.loads(asked.partition(":")[2])
        except ValueError:
            return None
        return SessionMessage(refused.model_copy(update={"id": given}))


def _process_id(machine: Machine, name: str, definition: Definition, number: int) -> str:
    named = f"mcp server\n{machine.sandbox_id}\n{name}\n{definition.fingerprint}\n{number}"
    return "p_" + hashlib.sha256(named.encode()).hexdigest()[:16]
