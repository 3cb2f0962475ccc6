"""An authenticated request to a sandbox, with everything that the toolbox needs to act there."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from paddock import errors, ids
from paddock.accounts.byte_budget import STREAM
from paddock.api.auth import Authenticated, Calling, admit
from paddock.api.compat.daytona.control.lifecycle import Intervals, intervals_of, lifecycle_of
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError, daytona_response
from paddock.api.compat.daytona.route import DaytonaRoute
from paddock.lifecycle.controller import ActiveSandbox
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine, ProcessSpec, TerminalSize
from paddock.store.records import SandboxRow
from paddock.workers import Workers

BASH = "/bin/bash"
_MAX_ARGUMENT = 120_000
"""Slightly less than the kernel's limit for one argument."""
_LABEL = 1000
_MERGED = 'exec "$0" "$@" 2>&1'


@dataclass(frozen=True, slots=True)
class ToolboxContext:
    caller: Authenticated
    use: ActiveSandbox
    kept: Intervals

    @property
    def machine(self) -> Machine:
        return self.use.machine

    @property
    def sandbox(self) -> SandboxRow:
        return self.use.sandbox

    @property
    def workers(self) -> Workers:
        return self.caller.context.workers.of(self.sandbox.owner_id)

    @property
    def user(self) -> str:
        return self.kept.user or DEFAULT_USER

    @property
    def home(self) -> str:
        return "/root" if self.user == "root" else f"/home/{self.user}"

    def resolve(self, path: str) -> str:
        """Make a path absolute: relative ones are below the working directory, ``~`` is the user's home."""
        if "\0" in path:
            raise bad_path("A path must not contain a NUL character")
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        plain = "/" + posixpath.normpath(posixpath.join(WORKSPACE, path)).lstrip("/")
        if len(plain.encode(errors="replace")) > 4095:
            raise bad_path("The path is too long")
        return plain

    def spec(
        self,
        argv: Sequence[str],
        *,
        label: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        terminal: TerminalSize | None = None,
        stdin: bool = False,
        hard_timeout: float | None = None,
        note: bytes = b"",
    ) -> ProcessSpec:
        unset = [word for name in self.kept.unset if name not in (env or {}) for word in ("-u", name)]
        return ProcessSpec(
            process_id=ids.new_process_id(),
            argv=["/usr/bin/env", *unset, *argv] if unset else list(argv),
            cwd=self.resolve(cwd) if cwd else WORKSPACE,
            env={**self.kept.env, **(env or {})},
            user=user or self.user,
            terminal=terminal,
            stdin=stdin,
            hard_timeout=hard_timeout,
            label=label[:_LABEL],
            note=note,
        )

    async def read(self, path: str, limit: int = 1 << 20, *, offset: int = 0) -> bytes | None:
        """The content of a small file of ours; None if it does not exist."""
        data = bytearray()
        try:
            async for chunk in self.machine.read_file(path, offset, limit, user=self.user):
                data += chunk
        except errors.PathNotFound:
            return None
        return bytes(data)

    async def write(self, path: str, data: bytes) -> None:
        async def whole() -> AsyncIterator[bytes]:
            yield data

        await self.machine.write_file(path, whole(), user=self.user)


def merged(command: str) -> tuple[list[str], bytes | None]:
    """The arguments that run a command in a shell with stderr merged into stdout, and the shell's input.

    A command that is too long for an argument is passed on the shell's standard input.
    """
    if len(command.encode(errors="replace")) <= _MAX_ARGUMENT:
        return [BASH, "-c", _MERGED, BASH, "-c", command], None
    return [BASH, "-c", _MERGED, BASH, "-s"], command.encode(errors="replace")


def bad_path(message: str) -> DaytonaError:
    return DaytonaError(400, message, "INVALID_FILE_PATH", DAEMON)


class ToolboxRoute(DaytonaRoute):
    source = DAEMON


@asynccontextmanager
async def entered(caller: Authenticated, sandbox_id: str) -> AsyncIterator[ToolboxContext]:
    sandbox = await lifecycle_of(caller.context).find(caller.who, sandbox_id)
    async with caller.context.controller.use(caller.who, sandbox.sandbox_id) as use:
        yield ToolboxContext(caller, use, intervals_of(use.sandbox))


async def _inside(
    request: Request, caller: Calling, sandbox_id: Annotated[str, Path()]
) -> AsyncIterator[ToolboxContext]:
    async with entered(caller, sandbox_id) as inside:
        yield inside


InsideHere = Annotated[ToolboxContext, Depends(_inside)]


async def serve_socket(
    websocket: WebSocket, sandbox_id: str, work: Callable[[ToolboxContext], Coroutine[Any, Any, None]]
) -> None:
    """Authenticate and handle a WebSocket. Errors before the handshake are answered by their HTTP status, as clients
    expect; later ones close the connection with the reason."""
    try:
        caller = await admit(websocket)
        caller.holding.reserve(STREAM)
        with caller.context.streams.enter(caller.who.user_id, caller.who.quota):
            async with entered(caller, sandbox_id) as inside:
                await work(inside)
    except WebSocketDisconnect:
        return
    except RuntimeError:
        # starlette's error if the client disconnected while we were sending.
        if WebSocketState.DISCONNECTED not in (websocket.client_state, websocket.application_state):
            raise
    except (DaytonaError, errors.PaddockError, RequestValidationError, ValidationError) as problem:
        told = RequestValidationError(problem.errors()) if isinstance(problem, ValidationError) else problem
        answer = daytona_response(told, source=DAEMON, path=websocket.scope["path"], method="GET")
        if websocket.application_state is WebSocketState.CONNECTING:
            await websocket.send_denial_response(answer)
        elif websocket.application_state is WebSocketState.CONNECTED:
            reason = str(told).encode()[:120].decode(errors="ignore")
            await websocket.close(1011, reason)
