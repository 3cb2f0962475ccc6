"""Add-ons through the API: what is installed, and installations, each in a subprocess that ends with the server.

One installation runs at a time. A request for the one that is running follows it; it continues if its followers
disconnect.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.addons import NAMES
from paddock.addons.addon_store import AddonStore, known
from paddock.addons.recipes import recipe
from paddock.machine.threads import in_thread
from paddock.models import AddonAnswer, AddonProgress, InstallAddon
from paddock.settings import Settings

PROGRAM = (sys.executable, "-m", "paddock.addons.installer")
_PROVIDER = "local"
_MAX_LINE = 1 << 20
_MAX_DETAIL = 500
_END_TIMEOUT_S = 10.0


class AddonInstallation:
    """An installation that is running or has ended."""

    def __init__(self, name: str, steps: int) -> None:
        self.name = name
        self.progress = AddonProgress(step=0, steps=steps, doing="", size=0)
        self.error: errors.PaddockError | None = None
        self.ended = False
        self._progressed = asyncio.Event()

    def hear(self, line: bytes) -> None:
        """Process one line of output. Programs that the installer runs may write there too: what is not JSON is shown
        as detail."""
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            detail = line.decode(errors="replace").strip()[:_MAX_DETAIL]
            self.progress = self.progress.model_copy(update={"detail": detail})
        elif "progress" in said:
            self.progress = AddonProgress.model_validate(said["progress"])
        elif "error" in said:
            error = said["error"]
            self.error = errors.error_for(error["code"], error["status"], error["message"])
        self._tell()

    def end(self, error: errors.PaddockError | None = None) -> None:
        self.error = self.error or error
        self.ended = True
        self._tell()

    async def follow(self) -> AsyncGenerator[AddonProgress, None]:
        """The current state, then the latest state after each change, until the end. Raises the error if the
        installation failed."""
        while not self.ended:
            progressed = self._progressed
            yield self.progress
            await progressed.wait()
        if self.error is not None:
            raise self.error

    def _tell(self) -> None:
        self._progressed.set()
        self._progressed = asyncio.Event()


class AddonInstalls:
    def __init__(self, settings: Settings, providers: Collection[str]) -> None:
        self._home = settings.home
        self._addon_store = AddonStore(settings.home / "addons")
        self._providers = providers
        self._latest: dict[str, AddonInstallation] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def every(self) -> list[AddonAnswer]:
        return [await self.get(name) for name in NAMES]

    async def get(self, name: str) -> AddonAnswer:
        summary = recipe(known(name)).summary
        found = await in_thread(self._addon_store.installed, name)
        latest = self._latest.get(name)
        answer = AddonAnswer(
            name=name,
            summary=summary,
            installed=found is not None,
            progress=latest.progress if latest and not latest.ended else None,
            problem=latest.error.message if latest and latest.error else None,
        )
        if found is not None:
            answer.version, answer.parts, answer.size = found.version, dict(found.parts), found.size
        return answer

    def install(self, who: Principal, name: str, wanted: InstallAddon) -> AddonInstallation:
        """Start the installation, unless it is running already."""
        self._check(who)
        steps = recipe(known(name), full=wanted.full).steps
        if self._closed:
            raise errors.Unavailable("The server is stopping.")
        if (running := self._running()) is not None:
            if running.name == name:
                return running
            raise errors.Conflict(f"The add-on {running.name!r} is being installed. Wait for its end.")
        installation = self._latest[name] = AddonInstallation(name, steps)
        words = [name, *(["--full"] if wanted.full else []), *(["--fresh"] if wanted.fresh else [])]
        self._task = asyncio.create_task(self._run_installer(installation, words), name=f"installation of {name}")
        return installation

    async def remove(self, who: Principal, name: str) -> None:
        self._check(who)
        known(name)
        if self._running() is not None:
            raise errors.Conflict("An add-on is being installed. Wait for its end.")
        await in_thread(self._addon_store.remove, name)
        self._latest.pop(name, None)

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _check(self, who: Principal) -> None:
        if not who.is_admin:
            raise errors.Forbidden("Only an admin may install and remove add-ons.")
        if _PROVIDER not in self._providers:
            raise errors.Unsupported(
                "Add-ons are for sandboxes of the provider `local`, which this server does not have."
            )

    def _running(self) -> AddonInstallation | None:
        return next((each for each in self._latest.values() if not each.ended), None)

    async def _run_installer(self, installation: AddonInstallation, words: list[str]) -> None:
        try:
            program = await asyncio.create_subprocess_exec(
                *PROGRAM,
                str(self._home),
                *words,
                stdin=DEVNULL,
                stdout=PIPE,
                start_new_session=True,
                limit=_MAX_LINE,
            )
        except OSError as error:
            installation.end(errors.AddonFailed(f"The installer cannot be started: {error.strerror}"))
            return
        try:
            assert program.stdout is not None  # noqa: S101 - it is a pipe
            while line := await _read_line(program.stdout):
                installation.hear(line)
            status = await program.wait()
            installation.end(errors.AddonFailed(f"The installer ended with {status}.") if status else None)
        finally:
            await _end(program)
            if not installation.ended:
                installation.end(errors.AddonFailed("The server was stopped in the middle of it."))


async def _read_line(output: asyncio.StreamReader) -> bytes:
    while True:
        try:
            return await output.readline()
        except ValueError:  # longer than any line of the installer: what was read of it is dropped
            continue


async def _end(program: Process) -> None:
    """End the installer and its whole process group."""
    if program.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT_S):
                await program.wait()
                return
