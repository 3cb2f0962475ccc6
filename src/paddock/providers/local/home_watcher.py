"""Has the sandboxes of a home that was removed end themselves: ``agent/launch/watch.c`` is who looks, and ends them.

One such process for a home; it outlives this server as its sandboxes do, and the next server finds it by its socket.
Here it is started, and told of every sandbox. When it ends, for whatever reason, another is started and told again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddock.providers.common.record import RunningProcess, SandboxRecord
from paddock.providers.local import uids

log = structlog.get_logger(__name__)

SOCKET = "watch.sock"
_LISTENER_FD = 3
_BACKLOG = 16
_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Message:
    """Of one sandbox, with what its folder and its first process are known by. Whoever holds it closes those."""

    text: bytes
    descriptors: tuple[int, int]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class HomeWatcher:
    def __init__(self, root: Path, program: Path, handles: Callable[[], Iterable[tuple[Path, SandboxRecord]]]) -> None:
        """``handles``: every sandbox that there is now, to tell another watcher of."""
        self._root = root
        self._program = program
        self._handles = handles
        self._link: socket.socket | None = None
        self._waiting: deque[_Message] = deque()
        self._again: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._again = None
        try:
            self._link = self._connect() or self._launch()
        except OSError as error:
            log.warning("sandboxes are not watched: they stay if their home is removed", problem=str(error))
            self._again = self._loop.call_later(_AGAIN_S, self.start)
            return
        self._loop.add_reader(self._link, self._lost)
        for folder, record in self._handles():
            self.add(folder, record.running)

    def add(self, folder: Path, running: RunningProcess | None) -> None:
        """From now on it ends when this folder, under whatever name it has by then, is removed."""
        if self._link is None or running is None:
            return
        try:
            self._waiting.append(_message(folder, running))
        except OSError:
            return  # it has ended or is being deleted in this moment
        self._send()

    def close(self) -> None:
        """The watcher stays for as long as there is something to watch."""
        if self._again is not None:
            self._again.cancel()
        self._drop()

    def _send(self) -> None:
        while self._link is not None and self._waiting:
            message = self._waiting[0]
            try:
                socket.send_fds(self._link, [message.text], message.descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._link, self._send)
                return
            except OSError:
                return  # it has ended; `_lost` hears of it
            self._waiting.popleft().close()
        if self._link is not None:
            self._loop.remove_writer(self._link)

    def _lost(self) -> None:
        """It never sends anything, so this is its end."""
        self._drop()
        self.start()

    def _drop(self) -> None:
        if self._link is not None:
            self._loop.remove_reader(self._link)
            self._loop.remove_writer(self._link)
            self._link.close()
            self._link = None
        while self._waiting:
            self._waiting.popleft().close()

    def _connect(self) -> socket.socket | None:
        """To one that is there. None where there is none."""
        link = _socket()
        try:
            with _named(self._root) as place:
                link.connect(f"{place}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            link.close()
            return None
        except OSError:
            link.close()
            raise
        return link

    def _launch(self) -> socket.socket:
        with _socket() as listener:
            with _named(self._root) as place:
                # Under another name first: of two servers that do this at once, each has a watcher that hears it.
                fresh = f"{place}/.{SOCKET}.{os.getpid()}"
                with suppress(FileNotFoundError):
                    os.unlink(fresh)  # noqa: PTH108
                listener.bind(fresh)
                listener.listen(_BACKLOG)
                link = _socket()
                link.connect(fresh)
                os.rename(fresh, f"{place}/{SOCKET}")  # noqa: PTH104
            try:
                self._spawn(listener)
            except OSError:
                link.close()
                raise
        return link

    def _spawn(self, listener: socket.socket) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            places = {0: null, 1: null, 2: null, _LISTENER_FD: listener.fileno()}
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in places.items()]
            # The home is shown in a list of processes.
            words = ["paddock-launch", "watch", str(self._root)]
            pid = os.posix_spawn(self._program, words, {}, file_actions=actions)
        finally:
            os.close(null)
        with suppress(ChildProcessError):  # the program that embeds this server reaps every child itself
            os.waitpid(pid, 0)  # it leaves a child in the background, and ends at once


def _message(folder: Path, running: RunningProcess) -> _Message:
    group = running.group
    v2 = group.v2 if group is not None else None
    freezer = group.v1.get("freezer") if group is not None else None
    claim, claimed_for = uids.describe(running.uid_slot) if running.uid_slot is not None else ("", "")
    words = [
        f"{running.pid}.{running.start_time}",
        f"{v2}/cgroup.kill" if v2 else "",
        f"{freezer}/freezer.state" if freezer else "",
        claim,
        claimed_for,
        *(str(path) for path in (group.paths() if group is not None else ())),
    ]
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        process = os.pidfd_open(running.pid)
    except OSError:
        os.close(place)
        raise
    message = _Message(b"".join(os.fsencode(word) + b"\0" for word in words), (place, process))
    if not running.alive():
        message.close()
        raise ProcessLookupError(running.pid)
    return message


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    return made


@contextmanager
def _named(root: Path) -> Iterator[str]:
    """A directory by its descriptor: its path may be longer than the address of a socket can be."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
