"""The running side of a sandbox: its keeper and the namespaces that it holds, and whoever lives in them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.providers.fake.descriptors import life_lock_is_held, locked, take_life_lock
from paddock.providers.fake.folder import Folder
from paddock.providers.fake.keeper import procfs
from paddock.providers.fake.view import bubblewrap_command

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from keeper.main import main; main()"
_START_SECONDS = 20.0
_END_SECONDS = 10.0
_INHERITED = ("PATH", "LD_LIBRARY_PATH")
"""What the keeper gets of the server's environment: what it takes to run Python and nsenter."""
_STOP_SECONDS = 5.0
_ADVICE = (
    "Commands need bubblewrap, nsenter and user namespaces. Check that util-linux is installed, and that the sysctls "
    "kernel.apparmor_restrict_unprivileged_userns (0), kernel.unprivileged_userns_clone (1) and "
    "user.max_user_namespaces (above 0) allow them."
)


@dataclass(frozen=True, slots=True)
class Holding:
    """Namespaces that exist."""

    generation: str
    """Which keeper: a process of an earlier one is lost."""
    init: int
    started: int
    user_namespace: str


class Namespaces:
    """Started with the first command, gone when the keeper is gone. All calls block: use a thread."""

    def __init__(self, folder: Folder, bubblewrap: str | None, spool_limit: int) -> None:
        self._folder = folder
        self._bubblewrap = bubblewrap
        self._spool_limit = spool_limit
        self._lock = folder.keeper / "lock"

    def current(self) -> Holding | None:
        if not life_lock_is_held(self._lock):
            return None
        try:
            generation, init, started, user = (self._folder.keeper / "holder").read_text().split()
        except FileNotFoundError:
            return None
        return Holding(generation, int(init), int(started), user)

    def ensure(self) -> Holding:
        """The namespaces there are, or new ones; two servers never start two."""
        if holding := self.current():
            return holding
        self._folder.keeper.mkdir(exist_ok=True)
        with locked(self._folder.keeper / "start"):
            return self.current() or self._start()

    def _start(self) -> Holding:
        if self._bubblewrap is None or shutil.which("nsenter") is None:
            missing = "bubblewrap" if self._bubblewrap is None else "nsenter"
            raise errors.ProviderUnavailable(f"{missing} was not found on this machine. {_ADVICE}")
        keeper = self._folder.keeper
        with suppress(FileExistsError):
            os.mkfifo(keeper / "requests", 0o600)
        (keeper / "holder").unlink(missing_ok=True)
        life = take_life_lock(self._lock)
        try:
            self._run_keeper(life, bubblewrap_command(self._bubblewrap, self._folder.root))
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.ProviderUnavailable(
                f"The sandbox could not be started: {self._log(error)}. {_ADVICE}"
            ) from error
        finally:
            os.close(life)
        if holding := self.current():
            return holding
        raise errors.ProviderUnavailable(f"The sandbox ended as soon as it had started. {_ADVICE}")

    def _run_keeper(self, life: int, command: list[str]) -> None:
        """Returns when it is ready; the keeper itself is by then nobody's child."""
        argv = [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parent)]
        argv += [secrets.token_hex(8), str(self._spool_limit), str(life), *command]
        with (self._folder.keeper / "log").open("wb") as log:
            subprocess.run(
                argv,
                cwd=self._folder.path,
                env={"PATH": os.defpath, **{name: os.environ[name] for name in _INHERITED if name in os.environ}},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[life],
                timeout=_START_SECONDS,
                check=True,
            )

    def _log(self, error: Exception) -> str:
        text = (self._folder.keeper / "log").read_text(errors="replace").strip()
        return text.splitlines()[-1][:500] if text else str(error)

    def ask(self, request: str) -> None:
        """One line to the keeper, whole: it is far shorter than what a FIFO takes at once."""
        for _ in range(1000):
            try:
                fd = os.open(self._folder.keeper / "requests", os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                raise errors.ProviderUnavailable("The sandbox's keeper does not listen.") from error
            try:
                os.write(fd, f"{request}\n".encode())
                return
            except BlockingIOError:
                time.sleep(0.005)
            finally:
                os.close(fd)
        raise errors.ProviderUnavailable("The sandbox's keeper does not answer.")

    def members(self) -> Iterator[int]:
        """Host pids of what runs inside, without bubblewrap's own two."""
        if (holding := self.current()) is None:
            return
        with suppress(FileNotFoundError):
            namespace = _pid_namespace(holding.init)
            for pid in procfs.all_pids():
                with suppress(FileNotFoundError, PermissionError, ProcessLookupError):
                    if _pid_namespace(pid) == namespace and _pid_inside(pid) > 2:
                        yield pid

    def stop(self) -> None:
        """Sweep until a whole round finds nobody moving: a process may fork while we look.

        One that sleeps uninterruptibly (``D``) stops when it wakes. A parent in vfork does so only after its child,
        which may itself be stopped by now: waiting for it would take for ever.
        """
        told: set[int] = set()
        until = time.monotonic() + _STOP_SECONDS
        moving = True
        while moving and time.monotonic() < until:
            moving = False
            for pid in self.members():
                state = procfs.state(pid)
                if state in ("T", "t", "Z", "X", "") or (state == "D" and pid in told):
                    continue
                moving = True
                told.add(pid)
                _kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self.members():
            _kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill everything inside and wait until the keeper has gone too."""
        until = time.monotonic() + _END_SECONDS
        while life_lock_is_held(self._lock):
            if (holding := self.current()) and procfs.is_alive(holding.init, holding.started):
                _kill(holding.init, signal.SIGKILL)
            if time.monotonic() > until:
                raise errors.ProviderUnavailable(f"The processes of {self._folder.sandbox_id!r} do not end.")
            time.sleep(0.001)


def _pid_namespace(pid: int) -> int:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino  # noqa: PTH116


def _pid_inside(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    return int(text.partition("NSpid:")[2].partition("\n")[0].split()[-1])


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
