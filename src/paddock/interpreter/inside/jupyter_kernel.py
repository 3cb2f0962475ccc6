"""A kernel that speaks Jupyter's protocol through jupyter-client: shared by Python and R."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from typing import Any

from . import outputs
from .fork_server_client import KernelProcess
from .kernels import START_SECONDS, CannotStart, Kernel, KernelEnded, StartInterrupted
from .outputs import Output

_RETRY_SECONDS = 0.1
_WAITING_MESSAGES = 16
_END_SECONDS = 5.0
_FINAL_OUTPUT_SECONDS = 0.1

Message = dict[str, Any]


class JupyterKernel(Kernel):
    """Subclasses define how the process is started."""

    language: str

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._child: KernelProcess | None = None
        self._client: Any = None
        self._folder: str | None = None
        self._hearing: list[asyncio.Task[None]] = []
        self._asked = ""
        self._count = 0
        self._heard: asyncio.Queue[Message] = asyncio.Queue(_WAITING_MESSAGES)

    @property
    def alive(self) -> bool:
        return self._child is not None and not self._child.ended.done()

    @abstractmethod
    async def spawn(self, connection_file: str) -> KernelProcess:
        """Start the kernel's process, as leader of its own process group."""

    def failure(self) -> str:
        """Why the process ended during its start, if it reported that."""
        return ""

    def began(self) -> bool:
        """Whether the last code may have run, if the kernel ended without a reply."""
        return True

    async def start(self) -> None:
        try:
            from jupyter_client.connect import write_connection_file
        except ImportError as problem:
            raise CannotStart(f"{self.language}'s kernels cannot be used here: {problem}") from None
        self._folder = tempfile.mkdtemp(prefix="paddock-kernel-")
        connection_file, _ = write_connection_file(
            os.path.join(self._folder, "connection.json"), transport="ipc", ip=os.path.join(self._folder, "channel")
        )
        self._child = await self.spawn(connection_file)
        self._client = _client(connection_file)
        self._hearing = [asyncio.ensure_future(each) for each in (self._receive(), self._ignore_replies())]
        try:
            await asyncio.wait_for(self._handshake(), START_SECONDS)
        except asyncio.TimeoutError:
            raise CannotStart(f"The {self.language} kernel did not start in time") from None
        except KernelEnded as problem:
            kind = StartInterrupted if self._child.orphaned else CannotStart
            raise kind(f"The {self.language} kernel did not start: {self.failure() or problem}") from None

    async def ask(
        self, code: str, metadata: Mapping[str, Any] | None = None, *, silent: bool = False
    ) -> AsyncGenerator[Output, None]:
        """Run code and yield the messages it publishes. ``silent`` code does not increase the execution count."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        if self._child is not None and self._child.ended.done():
            raise KernelEnded(self._child.ended.result())
        asked = self._send("execute_request", content, metadata)
        begun = silent
        try:
            while True:
                message = await self._next()
                if message["parent_header"]["msg_id"] != asked:
                    continue  # a late reply to the handshake
                if _idle(message):
                    break
                for output in _outputs(message["header"]["msg_type"], message["content"]):
                    begun = True
                    self._count = output.get("execution_count", self._count)
                    yield output
        except KernelEnded:
            # A process that ends itself may take its last messages with it, including that the code has started. The
            # code must not run twice.
            if not begun and self.began():
                yield outputs.count(self._count + 1)
            raise

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    async def close(self) -> None:
        self._signal(signal.SIGKILL)
        if self._child is not None:
            await asyncio.wait({self._child.ended}, timeout=_END_SECONDS)
        for task in self._hearing:
            task.cancel()
        await asyncio.gather(*self._hearing, return_exceptions=True)
        if self._client is not None:
            self._client.stop_channels()
            self._client.context.destroy(linger=0)
            self._client = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _handshake(self) -> None:
        """Repeat until the kernel has answered: messages published before our subscription is active are lost."""
        assert self._child is not None
        while True:
            if self._child.ended.done():
                raise KernelEnded(self._child.ended.result())
            self._send("kernel_info_request", {})
            with suppress(asyncio.TimeoutError):
                while not _idle(await asyncio.wait_for(self._next(), _RETRY_SECONDS)):
                    pass
                return

    def _send(self, kind: str, content: dict[str, Any], metadata: Mapping[str, Any] | None = None) -> str:
        message = self._client.session.msg(kind, content, metadata=metadata)
        self._asked = str(message["header"]["msg_id"])
        self._client.shell_channel.send(message)
        return self._asked

    async def _receive(self) -> None:
        """Read all messages that the kernel publishes. Messages of earlier requests, such as the output of a background
        thread, are discarded, so that their sender is not blocked."""
        while True:
            message = await self._client.get_iopub_msg(timeout=None)
            if message["parent_header"].get("msg_id") == self._asked:
                await self._heard.put(message)

    async def _ignore_replies(self) -> None:
        """Replies contain nothing that is not also published, and after a badly timed interrupt there is none."""
        while True:
            await self._client.get_shell_msg(timeout=None)

    async def _next(self) -> Message:
        """The next published message of the current request."""
        return self._heard.get_nowait() if not self._heard.empty() else await self._unless_ended(self._heard.get())

    async def _unless_ended(self, coming: Awaitable[Message]) -> Message:
        assert self._child is not None
        message = asyncio.ensure_future(coming)
        either: set[asyncio.Future[Any]] = {message, self._child.ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not message.done():  # its last messages may still be in transit
                await asyncio.wait({message}, timeout=_FINAL_OUTPUT_SECONDS)
            if message.done():
                return message.result()
            raise KernelEnded(self._child.ended.result())
        finally:
            message.cancel()

    def _signal(self, number: int) -> None:
        if self._child is not None and not self._child.ended.done():
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def _client(connection_file: str) -> Any:
    import zmq
    from jupyter_client.asynchronous.client import AsyncKernelClient

    client = AsyncKernelClient(connection_file=connection_file)
    client.context.setsockopt(zmq.RCVHWM, _WAITING_MESSAGES)
    client.load_connection_file()
    client.start_channels(stdin=False, hb=False, control=False)
    return client


def _idle(message: Message) -> bool:
    return bool(message["header"]["msg_type"] == "status" and message["content"].get("execution_state") == "idle")


def _outputs(kind: str, said: Mapping[str, Any]) -> list[Output]:
    if kind == "execute_input":
        return [outputs.count(said["execution_count"])]
    if kind == "stream":
        return [outputs.stream(said["name"], piece) for piece in outputs.pieces(said["text"])]
    if kind in ("display_data", "execute_result"):
        return [outputs.result(said["data"], kind == "execute_result")]
    if kind == "error":
        return [outputs.error(said["ename"], said["evalue"], "\n".join(said["traceback"]))]
    return []
