"""Client of the interpreter's protocol, over a connection into the sandbox.

Its answers are untrusted: lines are limited in length and must follow the protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpcore

from paddock import errors, large_json
from paddock.interpreter import PORT
from paddock.loop_turns import give_turn
from paddock.machine.base import Connection
from paddock.machine.lines import LineBuffer
from paddock.memory import Hold, MemoryReservation
from paddock.workers import Workers

MAX_LINE = 32 << 20
_ORIGIN = httpcore.Origin(b"http", b"127.0.0.1", PORT)
_PIECE = 16 * 1024
"""Maximum bytes parsed at once: an answer may begin with an endless number of interim responses."""
_ANSWER_SECONDS = 90.0
"""Timeout of an answer's beginning, which may include the start of a kernel."""
_SILENCE_SECONDS = 30.0
"""Longer than several intervals of the keepalives that the interpreter sends while code runs."""
_MAX_ANSWER = 1 << 20
_COPIES = 3
"""Copies of a line in memory: as received, parsed, and as part of an answer."""
_TRIES = 3


class InterpreterClient:
    """``dial`` opens a connection to the interpreter, starting it if necessary. Large answers are parsed by
    ``workers``, and their memory is reserved with ``hold``."""

    def __init__(self, dial: Callable[[], Awaitable[Connection]], workers: Workers, hold: Hold) -> None:
        self._dial = dial
        self._workers = workers
        self._hold = hold

    async def execute(
        self,
        code: str,
        *,
        language: str | None,
        context_id: str | None,
        env: Mapping[str, str],
        cwd: str,
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Run code, and yield its output line by line. Closing the iterator interrupts the code."""
        body: dict[str, Any] = {"code": code, "context_id": context_id, "language": language, "env_vars": dict(env)}
        if context_id is None:
            body["cwd"] = cwd
        memory = self._hold()
        try:
            async with self._ask("POST", "/execute", body) as response, aclosing(_lines(response, memory)) as lines:
                async for line in lines:
                    output = await self._object(line)
                    if output["type"] == "end_of_execution":
                        return
                    yield output
        finally:
            memory.release()
        raise errors.InterpreterFailed("The interpreter ended in the middle of the execution; run the code again.")

    async def contexts(self) -> list[Mapping[str, Any]]:
        return list(await self._call("GET", "/contexts"))

    async def create_context(self, language: str | None, cwd: str) -> Mapping[str, Any]:
        created: Mapping[str, Any] = await self._call("POST", "/contexts", {"language": language, "cwd": cwd})
        return created

    async def remove_context(self, context_id: str) -> None:
        await self._call("DELETE", f"/contexts/{quote(context_id, safe='')}")

    async def restart_context(self, context_id: str) -> None:
        await self._call("POST", f"/contexts/{quote(context_id, safe='')}/restart")

    async def warm_up(self, language: str = "python") -> None:
        """Start the kernel of this language's default context."""
        await self._call("POST", "/warm", {"language": language})

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        async with self._ask(method, path, body) as response:
            return await self._json(await _whole(response))

    async def _object(self, line: bytes) -> Mapping[str, Any]:
        found = await self._json(line)
        if not isinstance(found, dict) or not isinstance(found.get("type"), str):
            raise errors.InterpreterFailed("The interpreter answered with something unexpected.")
        return found

    async def _json(self, text: bytes) -> Any:
        try:
            return await large_json.loads(text, self._workers)
        except errors.InputTooCostly:
            raise
        except errors.Invalid as problem:
            raise errors.InterpreterFailed(f"What the code showed is too large. {problem.message}") from None
        except ValueError:
            raise errors.InterpreterFailed("The interpreter answered with something that is not JSON.") from None

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[httpcore.Response, None]:
        """The body of a successful answer."""
        content = json.dumps(body or {}).encode()
        request = httpcore.Request(
            method,
            httpcore.URL(scheme=b"http", host=b"127.0.0.1", port=PORT, target=path.encode()),
            headers={"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(content))},
            content=content,
        )
        try:
            connection, response = await self._begin(request)
            try:
                if response.status != 200:
                    raise _refused(response.status, (await _whole(response)).decode(errors="replace"))
                yield response
            finally:
                await connection.aclose()
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as problem:
            raise errors.InterpreterFailed(f"The interpreter in the sandbox does not answer: {problem}") from problem

    async def _begin(self, request: httpcore.Request) -> tuple[httpcore.AsyncHTTP11Connection, httpcore.Response]:
        """Send a request and read the head of its answer. If the connection ends before the head, nothing was executed,
        so the request is sent again, to the interpreter's restarted process."""
        for tries_left in reversed(range(_TRIES)):
            stream = _SandboxStream(await self._dial())
            connection = httpcore.AsyncHTTP11Connection(_ORIGIN, stream)
            try:
                response = await connection.handle_async_request(request)
            except (httpcore.NetworkError, httpcore.ProtocolError):
                await connection.aclose()
                if not tries_left:
                    raise
            except BaseException:
                await connection.aclose()
                raise
            else:
                stream.silence = _SILENCE_SECONDS
                return connection, response
        raise AssertionError("unreachable")


class _SandboxStream(httpcore.AsyncNetworkStream):
    """A connection into the sandbox, as an httpcore stream. ``silence`` is the timeout of a read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.silence = _ANSWER_SECONDS

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(self.silence):
                return await self._connection.read(min(max_bytes, _PIECE))
        except TimeoutError:
            raise httpcore.ReadTimeout(f"nothing came for {self.silence:g} s") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._connection.write(buffer)
        except TimeoutError:
            raise httpcore.WriteTimeout(f"nothing was taken for {_ANSWER_SECONDS:g} s") from None
        except errors.Conflict as problem:
            raise httpcore.WriteError(problem.message) from problem

    async def aclose(self) -> None:
        await self._connection.close()

    def get_extra_info(self, info: str) -> Any:
        return False if info == "is_readable" else None


async def _lines(response: httpcore.Response, memory: MemoryReservation) -> AsyncGenerator[bytes, None]:
    lines = LineBuffer()
    async for chunk in response.aiter_stream():
        for line in lines.feed(chunk):
            await give_turn()
            yield line
        memory.release()  # the data read before has been consumed
        memory.reserve(_COPIES * len(lines))
        if len(lines) > MAX_LINE:
            raise errors.InterpreterFailed(f"One output is larger than {MAX_LINE} bytes; write such things to a file.")


async def _whole(response: httpcore.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > _MAX_ANSWER:
            raise errors.InterpreterFailed("The interpreter's answer is too large.")
    return bytes(body)


def _refused(status: int, said: str) -> errors.PaddockError:
    match status:
        case 404:
            return errors.CodeContextNotFound(said[:500])
        case 400:
            return errors.Invalid(said[:500])
        case 500:
            return errors.InterpreterMissing(said[:2000])
    return errors.InterpreterFailed(f"The interpreter answered with status {status}: {said[:500]}")
