"""The deepagents backend: stores files and runs commands in a Paddock sandbox.

``BaseSandbox`` would start ``python3`` in the sandbox for every operation. Here files are read, written, edited, listed
and deleted through the API; only searches of a directory tree run inside. The coroutines use no threads.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deepagents.backends.protocol import (
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from paddock.client.call import Steps
from paddock.client.pair import ClientPair
from paddock.deepagents import commands, globbing
from paddock.deepagents import files as filing

if TYPE_CHECKING:
    from paddock.client import SandboxClient, SyncSandboxClient
    from paddock.session.session import Session

T = TypeVar("T")
COMMAND_SECONDS = 1800
_MAX_TRANSFERS = 8
"""Maximum concurrent transfers."""


class PaddockSandbox(BaseSandbox):
    """``create_deep_agent(model=…, backend=PaddockSandbox(sandbox_id))``

    ``timeout`` is the default of commands; ``user`` is the user inside the sandbox. Close it, or use it as a context
    manager: that closes its connections and keeps the sandbox.
    """

    def __init__(
        self,
        sandbox_id: str,
        *,
        client: SandboxClient | SyncSandboxClient | None = None,
        server_url: str | None = None,
        api_key: str | None = None,
        timeout: int = COMMAND_SECONDS,
        user: str | None = None,
    ) -> None:
        self._sandbox_id = sandbox_id
        self._clients = ClientPair(client, server_url=server_url, api_key=api_key)
        self._timeout = timeout
        self._user = user

    @classmethod
    def of(cls, session: Session, *, timeout: int = COMMAND_SECONDS, user: str | None = None) -> Self:
        """A backend in the sandbox of a session. Closing it closes the session."""
        made = cls.__new__(cls)
        made._sandbox_id = session.sandbox_id
        made._clients = session.clients
        made._timeout = timeout
        made._user = user
        return made

    @property
    def id(self) -> str:
        return self._sandbox_id

    # Commands

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._run(self._execute(command, timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return await self._arun(self._execute(command, timeout))

    # Files

    def ls(self, path: str) -> LsResult:
        return self._run(filing.list_directory(self.id, path, self._user))

    async def als(self, path: str) -> LsResult:
        return await self._arun(filing.list_directory(self.id, path, self._user))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        found = self._run(filing.read(self.id, file_path, offset, limit, self._user))
        return super().read(file_path, offset, limit) if found is None else found

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        found = await self._arun(filing.read(self.id, file_path, offset, limit, self._user))
        return await super().aread(file_path, offset, limit) if found is None else found

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._run(filing.write(self.id, file_path, content, self._user))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await self._arun(filing.write(self.id, file_path, content, self._user))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        done = self._run(filing.edit(self.id, file_path, old_string, new_string, replace_all, self._user))
        return super().edit(file_path, old_string, new_string, replace_all) if done is None else done

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        done = await self._arun(filing.edit(self.id, file_path, old_string, new_string, replace_all, self._user))
        return await super().aedit(file_path, old_string, new_string, replace_all) if done is None else done

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        found = self._run(globbing.glob(self.id, pattern, path, self._user))
        return super().glob(pattern, path) if found is None else found

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        found = await self._arun(globbing.glob(self.id, pattern, path, self._user))
        return await super().aglob(pattern, path) if found is None else found

    def delete(self, file_path: str) -> Any:
        return self._run(filing.delete(self.id, file_path, self._user))

    async def adelete(self, file_path: str) -> Any:
        return await self._arun(filing.delete(self.id, file_path, self._user))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [self._run(filing.upload_one(self.id, path, content, self._user)) for path, content in files]

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return await self._concurrently(
            [filing.upload_one(self.id, path, content, self._user) for path, content in files]
        )

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._run(filing.download_one(self.id, path, self._user)) for path in paths]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return await self._concurrently([filing.download_one(self.id, path, self._user) for path in paths])

    # Connections

    def close(self) -> None:
        self._clients.close()

    async def aclose(self) -> None:
        await self._clients.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _execute(self, command: str, timeout: int | None) -> Steps[ExecuteResponse]:
        return commands.execute(self.id, command, self._timeout if timeout is None else timeout, self._user)

    def _run(self, steps: Steps[T]) -> T:
        return self._clients.run(steps)

    async def _arun(self, steps: Steps[T]) -> T:
        return await self._clients.run_async(steps)

    async def _concurrently(self, many: list[Steps[T]]) -> list[T]:
        room = asyncio.Semaphore(_MAX_TRANSFERS)

        async def one(steps: Steps[T]) -> T:
            async with room:
                return await self._arun(steps)

        return await asyncio.gather(*(one(steps) for steps in many))
