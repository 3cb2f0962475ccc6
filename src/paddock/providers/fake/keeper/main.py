"""The keeper's loop: requests, output, input, ends and deadlines of every command of one sandbox."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from contextlib import suppress

from .holder import Holder
from .poller import READ, Poller
from .process import Process
from .spool import write_whole

STOPPED_LOOK = 0.05
HOME_LOOK = 2.0
START_SECONDS = 15
"""Past that bubblewrap hangs, and the keeper gives up."""


class Keeper:
    def __init__(self, limit: int, holder: Holder) -> None:
        self._limit = limit
        self._holder = holder
        self._alive = True
        self._poller = Poller()
        self._processes: dict[str, Process] = {}
        self._requests = os.open("keeper/requests", os.O_RDWR | os.O_NONBLOCK)
        self._unfinished = b""
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poller.watch(self._requests, READ, self._on_requests)
        self._poller.watch(self._woken, READ, self._on_child)

    def run(self) -> None:
        """Until the sandbox is gone and every command's end is recorded."""
        self._on_child()
        while self._alive or self._processes:
            self._poller.wait(self._patience())
            self._check_home()
            now = time.monotonic()
            for process_id, process in list(self._processes.items()):
                process.nudge()
                process.check_deadline(now)
                if process.done:
                    process.close()
                if process.done or (process.ended and not self._alive):
                    del self._processes[process_id]

    def _patience(self) -> float:
        running = [process for process in self._processes.values() if not process.ended]
        waits = [process.deadline - time.monotonic() for process in running if process.deadline is not None]
        waits.append(HOME_LOOK)
        if any(process.stopped for process in running):
            waits.append(STOPPED_LOOK)
        return min(waits)

    def _check_home(self) -> None:
        """A folder that somebody simply removed was a sandbox that nobody wants any more."""
        if self._alive and not os.path.exists("sandbox.json"):  # noqa: PTH110
            os.kill(self._holder.init, signal.SIGKILL)

    def _on_requests(self) -> None:
        try:
            data = os.read(self._requests, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            word, process_id, *rest = os.fsdecode(line).split(" ")
            process = self._processes.get(process_id)
            if word == "spawn":
                self._spawn(process_id)
            elif process and word == "close":
                process.finish_stdin()
            elif process and word == "resize":
                process.resize(int(rest[0]), int(rest[1]))

    def _spawn(self, process_id: str) -> None:
        folder = f"processes/{process_id}"
        try:
            self._processes[process_id] = Process(self._holder, self._poller, folder, self._limit)
        except OSError as error:
            write_whole(f"{folder}/refused", f"{error.errno} {error.strerror}")

    def _on_child(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        for process in self._processes.values():
            process.look()
        if self._alive and os.waitpid(self._holder.monitor, os.WNOHANG)[0]:
            self._alive = False


def main() -> None:
    """``<generation> <spool limit> <lock descriptor> <bubblewrap's command line…>``, in the sandbox's folder.

    Returns to its caller when the sandbox is ready, and goes on in the background.
    """
    generation, limit, lock, *command = sys.argv[1:]
    os.set_inheritable(int(lock), False)
    done, say = os.pipe()
    if os.fork():
        os.close(say)
        raise SystemExit(0 if os.read(done, 1) else 1)
    os.setsid()
    os.close(done)
    signal.alarm(START_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    holder = Holder(command)
    keeper = Keeper(int(limit), holder)
    write_whole("keeper/holder", f"{generation} {holder.init} {holder.started} {holder.user_namespace}\n")
    signal.alarm(0)
    os.write(say, b"1")
    os.close(say)
    keeper.run()
