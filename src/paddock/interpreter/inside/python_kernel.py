"""A Python kernel, driven through jupyter-client."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import outputs
from .kernels import START_SECONDS, CannotStart, Kernel, KernelEnded
from .nursery import FAILURE
from .nursery_link import Child, NurseryLink
from .outputs import Output

_METADATA_ENV = "paddock_env"
_AGAIN_SECONDS = 0.1
_WAITING_MESSAGES = 16
_END_SECONDS = 5.0
_LAST_WORDS_SECONDS = 0.1
_IDLE = {"execution_state": "idle"}

Message = dict[str, Any]


class PythonKernel(Kernel):
    def __init__(self, nursery: NurseryLink, cwd: str) -> None:
        self._nursery = nursery
        self._cwd = cwd
        self._child: Child | None = None
        self._client: Any = None
        self._folder: str | None = None
        self._hearing: list[asyncio.Task[None]] = []
        self._asked = ""
        self._heard: asyncio.Queue[Message] = asyncio.Queue(_WAITING_MESSAGES)

    @property
    def alive(self) -> bool:
        return self._child is not None and not self._child.ended.done()

    async def start(self) -> None:
        # The nursery starts while we import what talks to kernels; both take a good part of a second.
        nursery = asyncio.ensure_future(self._nursery.ready())
        await asyncio.sleep(0)
        try:
            from jupyter_client.connect import write_connection_file
        except ImportError as problem:
            nursery.cancel()
            raise CannotStart(f"Python's kernels cannot be used here: {problem}") from None
        self._folder = tempfile.mkdtemp(prefix="paddock-kernel-")
        connection_file, _ = write_connection_file(
            os.path.join(self._folder, "connection.json"), transport="ipc", ip=os.path.join(self._folder, "channel")
        )
        await nursery
        self._child = await self._nursery.spawn(connection_file, self._cwd)
        self._client = _client(connection_file)
        self._hearing = [asyncio.ensure_future(each) for each in (self._hear(), self._ignore_replies())]
        try:
            await asyncio.wait_for(self._greet(), START_SECONDS)
        except asyncio.TimeoutError:
            raise CannotStart("The Python kernel did not start in time") from None
        except KernelEnded as problem:
            raise CannotStart(f"The Python kernel did not start: {self._failure() or problem}") from None

    async def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        asked = self._send("execute_request", content, {_METADATA_ENV: dict(env)})
        while True:
            message = await self._next()
            if message["parent_header"]["msg_id"] != asked:
                continue  # a late answer to a greeting
            kind, said = message["header"]["msg_type"], message["content"]
            if said == _IDLE:
                break
            for output in _outputs(kind, said):
                yield output

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

    async def _greet(self) -> None:
        """Until it is heard: what it publishes before our subscription arrives, is lost."""
        assert self._child is not None
        while True:
            if self._child.ended.done():
                raise KernelEnded(self._child.ended.result())
            self._send("kernel_info_request", {})
            with suppress(asyncio.TimeoutError):
                while (await asyncio.wait_for(self._next(), _AGAIN_SECONDS))["content"] != _IDLE:
                    pass
                return

    def _send(self, kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
        message = self._client.session.msg(kind, content, metadata=metadata)
        self._asked = str(message["header"]["msg_id"])
        self._client.shell_channel.send(message)
        return self._asked

    async def _hear(self) -> None:
        """Everything that the kernel publishes. What belongs to nothing that was asked, such as the words of a
        thread that goes on, is let go, so that whoever says it is not held up."""
        while True:
            message = await self._client.get_iopub_msg(timeout=None)
            if message["parent_header"].get("msg_id") == self._asked:
                await self._heard.put(message)

    async def _ignore_replies(self) -> None:
        """They say nothing that was not published; and after an interrupt at the wrong moment there is none."""
        while True:
            await self._client.get_shell_msg(timeout=None)

    async def _next(self) -> Message:
        """The next thing that the kernel published of what was asked last."""
        return self._heard.get_nowait() if not self._heard.empty() else await self._unless_ended(self._heard.get())

    async def _unless_ended(self, coming: Awaitable[Message]) -> Message:
        assert self._child is not None
        message = asyncio.ensure_future(coming)
        either: set[asyncio.Future[Any]] = {message, self._child.ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not message.done():  # what it said last may still be on its way
                await asyncio.wait({message}, timeout=_LAST_WORDS_SECONDS)
            if message.done():
                return message.result()
            raise KernelEnded(self._child.ended.result())
        finally:
            message.cancel()

    def _signal(self, number: int) -> None:
        if self._child is not None and not self._child.ended.done():
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _failure(self) -> str:
        with suppress(OSError):
            return Path(self._folder or "", FAILURE).read_text(encoding="utf-8").strip()
        return ""


def _client(connection_file: str) -> Any:
    import zmq
    from jupyter_client.asynchronous.client import AsyncKernelClient

    client = AsyncKernelClient(connection_file=connection_file)
    client.context.setsockopt(zmq.RCVHWM, _WAITING_MESSAGES)
    client.load_connection_file()
    client.start_channels(stdin=False, hb=False, control=False)
    return client


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
