"""Runs code in stateful contexts, through the interpreter of each sandbox, which is started on demand.

Running code counts as use, like a command: it resumes a paused sandbox and is recorded. Code is interrupted at its
timeout, or when the client disconnects; what it has defined by then is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import ByteBudget
from paddock.clock import Clock
from paddock.interpreter import PORT
from paddock.interpreter.installation import Installation
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.machine.base import WORKSPACE, Connection, Machine
from paddock.models import CodeContext, CodeError, CodeResult, CodeStatus, CodeValue, CreateCodeContext, RunCode
from paddock.redaction import without_colours
from paddock.runtime.service_launch import ServiceLaunch
from paddock.runtime.services import Services
from paddock.settings import Settings
from paddock.workers import Workers

if TYPE_CHECKING:
    from paddock.interpreter.client import InterpreterClient

log = structlog.get_logger(__name__)

_MAX_CODE_IN_EVENT = 1000
_COPIES_IN_MEMORY = 2
"""Copies of the gathered output in memory: the output, and the response built from it."""
_PREPARE_DELAY_S = 5.0
"""Delay after server start, so that packing, which takes a core for a second or two, does not slow down first
requests."""
_FORMATS = {"html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart"}


class InterpreterService:
    """The interpreter as a service built into every sandbox."""

    title = "The code interpreter"
    port = PORT

    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    async def launch(self, machine: Machine) -> ServiceLaunch:
        argv = await self._installation.install(machine)
        return ServiceLaunch(name="code-interpreter", port=PORT, argv=argv, cwd="/")


@dataclass(frozen=True, slots=True)
class CodeStarted:
    execution_count: int


@dataclass(frozen=True, slots=True)
class CodeOutput:
    stream: str
    text: str


class CodeTimedOut(CodeError):
    """The code was interrupted by its timeout."""


Happening = CodeStarted | CodeOutput | CodeValue | CodeError
"""Events of an execution, in order."""


class CodeRunner:
    def __init__(
        self,
        controller: Controller,
        services: Services,
        installation: Installation,
        workers: Workers,
        in_flight: ByteBudget,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._services = services
        self._installation = installation
        self._workers = workers
        self._in_flight = in_flight
        self._settings = settings
        self._clock = clock
        self._beforehand: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Build the files that are sent into sandboxes in the background, unless the first run of code does so
        earlier."""
        self._run_in_background(self._prepare())

    def warm_up(self, key: str) -> None:
        """Start a sandbox's interpreter in the background, if it is certain to be asked to run code."""
        self._run_in_background(self._warm_up(key))

    async def close(self) -> None:
        for task in self._beforehand:
            task.cancel()
        await asyncio.gather(*self._beforehand, return_exceptions=True)

    async def run(self, who: Principal, request: RunCode) -> CodeResult:
        """Run the code and return its complete result, truncated to what one response may hold."""
        begun_at = self._clock.now()
        gathered = _Gathered(self._settings.max_output, self._settings.max_file_body)
        memory = self._in_flight.of(who.user_id)()
        try:
            async with aclosing(self.stream(who, request)) as happenings:
                async for happening in happenings:
                    gathered.add(happening)
                    memory.reserve(_COPIES_IN_MEMORY * gathered.size)
        finally:
            memory.release()  # from here on the response itself is counted
        return gathered.result(request.sandbox_id, self._clock.now() - begun_at)

    async def stream(self, who: Principal, request: RunCode) -> AsyncGenerator[Happening, None]:
        """Run the code and yield its events as they happen. Closing the generator interrupts the code."""
        limit = self._settings.command_timeout if request.timeout is None else request.timeout
        async with self._interpreter(who, request.sandbox_id) as (use, interpreter):
            outputs = interpreter.execute(
                request.code,
                language=request.language,
                context_id=request.context_id,
                env=request.env,
                cwd=WORKSPACE,
            )
            error: CodeError | None = None
            sent = 0
            try:
                async with aclosing(_until_timeout(outputs, limit)) as happenings:
                    async for happening in happenings:
                        error = happening if isinstance(happening, CodeError) else error
                        sent += len(happening.text) if isinstance(happening, CodeOutput) else 0
                        yield happening
            finally:
                await self._record(use, request, error, sent)

    # Contexts

    async def contexts(self, who: Principal, sandbox_id: str) -> list[CodeContext]:
        async with self._interpreter(who, sandbox_id) as (_, interpreter):
            return [_context(found) for found in await interpreter.contexts()]

    async def create_context(self, who: Principal, sandbox_id: str, request: CreateCodeContext) -> CodeContext:
        async with self._interpreter(who, sandbox_id) as (_, interpreter):
            return _context(await interpreter.create_context(request.language, request.cwd or WORKSPACE))

    async def remove_context(self, who: Principal, sandbox_id: str, context_id: str) -> None:
        async with self._interpreter(who, sandbox_id) as (_, interpreter):
            await interpreter.remove_context(context_id)

    async def restart_context(self, who: Principal, sandbox_id: str, context_id: str) -> None:
        async with self._interpreter(who, sandbox_id) as (_, interpreter):
            await interpreter.restart_context(context_id)

    # Internal

    @asynccontextmanager
    async def _interpreter(
        self, who: Principal, sandbox_id: str
    ) -> AsyncGenerator[tuple[ActiveSandbox, InterpreterClient], None]:
        async with self._controller.use(who, sandbox_id) as use:
            yield use, self._interpreter_of(use)

    def _interpreter_of(self, use: ActiveSandbox) -> InterpreterClient:
        from paddock.interpreter.client import InterpreterClient  # imports an HTTP client

        owner = use.sandbox.owner_id
        return InterpreterClient(lambda: self._dial(use), self._workers.of(owner), self._in_flight.of(owner))

    async def _dial(self, use: ActiveSandbox) -> Connection:
        try:
            return await use.machine.dial(PORT)
        except errors.Conflict:  # the port is closed
            await self._services.reach(use, PORT)
            return await use.machine.dial(PORT)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="interpreter, beforehand")
        self._beforehand.add(task)
        task.add_done_callback(self._beforehand.discard)

    async def _prepare(self) -> None:
        await asyncio.sleep(_PREPARE_DELAY_S)
        await asyncio.to_thread(import_module, "paddock.interpreter.client")
        try:
            await self._installation.prepare()
        except (errors.PaddockError, OSError) as problem:  # retried by the first run of code
            log.warning("the interpreter could not be prepared", reason=str(problem))

    async def _warm_up(self, key: str) -> None:
        try:
            async with self._controller.use_key(key, wake=False) as use:
                await self._interpreter_of(use).warm_up()
        except errors.PaddockError as problem:  # a later run of code reports it
            log.info("the interpreter could not be warmed up", key=key, reason=problem.message)

    async def _record(self, use: ActiveSandbox, request: RunCode, error: CodeError | None, sent: int) -> None:
        data = {
            "code": request.code[:_MAX_CODE_IN_EVENT],
            "language": request.language,
            "context_id": request.context_id,
            "error": error and error.name,
        }
        told = {name: value for name, value in data.items() if value is not None}
        await use.record(commands=1, bytes_out=sent, event=("code.finished", told))


class _Gathered:
    """Collects an execution for one response; each stream, and all results together, are limited in size."""

    def __init__(self, most_text: int, most_results: int) -> None:
        self._room = {"stdout": most_text, "stderr": most_text}
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._room_for_results = most_results
        self._results: list[CodeValue] = []
        self._error: CodeError | None = None
        self._count: int | None = None
        self._truncated = False
        self.size = 0

    def add(self, happening: Happening) -> None:
        match happening:
            case CodeStarted():
                self._count = happening.execution_count
            case CodeOutput(stream, text):
                room = self._room[stream]
                self._truncated |= len(text) > room
                self._texts[stream].append(text[:room])
                self.size += min(room, len(text))
                self._room[stream] -= min(room, len(text))
            case CodeError():
                self._error = happening
            case CodeValue():
                size = len(happening.model_dump_json())
                self._room_for_results -= size
                self._truncated |= self._room_for_results < 0
                if self._room_for_results >= 0:
                    self.size += size
                    self._results.append(happening)

    def result(self, sandbox_id: str, duration: float) -> CodeResult:
        main = next((value for value in self._results if value.is_main_result), None)
        status = CodeStatus.COMPLETED if self._error is None else CodeStatus.FAILED
        return CodeResult(
            sandbox_id=sandbox_id,
            status=CodeStatus.TIMED_OUT if isinstance(self._error, CodeTimedOut) else status,
            text=main and main.text,
            results=self._results,
            stdout="".join(self._texts["stdout"]),
            stderr="".join(self._texts["stderr"]),
            error=self._error,
            execution_count=self._count,
            truncated=self._truncated,
            duration=round(max(0.0, duration), 6),
        )


async def _until_timeout(
    outputs: AsyncGenerator[Mapping[str, Any], None], seconds: float
) -> AsyncGenerator[Happening, None]:
    """The events within ``seconds``; then interrupts the code and yields CodeTimedOut."""
    deadline = asyncio.get_running_loop().time() + seconds
    async with aclosing(outputs):
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    output = await anext(outputs)
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield CodeTimedOut(name="ExecutionTimeout", value=f"The code was interrupted after {seconds:g} s.")
                return
            if (happening := _happening(output)) is not None:
                yield happening


def _happening(output: Mapping[str, Any]) -> Happening | None:
    """None for messages without meaning here, such as keepalives."""
    try:
        match output["type"]:
            case "number_of_executions":
                return CodeStarted(int(output["execution_count"]))
            case "stdout" | "stderr" as stream:
                return CodeOutput(stream, str(output["text"]))
            case "error":
                error = CodeError.model_validate(output)
                return CodeError(**{name: without_colours(text) for name, text in error})
            case "result":
                formats = {name: output[name] for name in output.keys() & _FORMATS} | dict(output.get("extra") or {})
                main = bool(output.get("is_main_result"))
                return CodeValue(is_main_result=main, text=output.get("text"), formats=formats)
    except (LookupError, TypeError, ValueError, ValidationError):
        raise errors.InterpreterFailed("The interpreter answered with something unexpected.") from None
    return None


def _context(found: Mapping[str, Any]) -> CodeContext:
    try:
        return CodeContext(context_id=found["id"], language=found["language"], cwd=found["cwd"])
    except (LookupError, TypeError, ValidationError):
        raise errors.InterpreterFailed("The interpreter answered with something unexpected.") from None
