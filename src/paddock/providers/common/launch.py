"""Starts one sandbox: sends the plan to the launcher, records the agent's process, and detaches."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.providers.common.record import start_time

PLAN_FD, CONTROL_FD, LISTEN_FD, FILTER_FD, STATE_FD = 0, 3, 4, 5, 6
_FIRST_FREE_FD = 64
_LAUNCH_TIMEOUT_S = 30.0
_BACKLOG = 64
_NAMESPACE_STEPS = ("users", "enter")
"""The launcher's steps that create namespaces."""
_NAMESPACE_KINDS = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")
_RECOMMENDED_NAMESPACES = 15_000


class LaunchFailed(errors.ProviderRefused):
    """The kernel or the launcher refused a step, which the message names."""


@dataclass(frozen=True, slots=True)
class LaunchedProcess:
    pid: int
    start_time: int


class Launcher:
    def __init__(self, program: Path, filters: bytes) -> None:
        self._program = program
        self._filters = os.memfd_create("filters", os.MFD_CLOEXEC)
        os.write(self._filters, filters)

    def close(self) -> None:
        os.close(self._filters)

    async def launch(
        self,
        words: Sequence[str],
        listener: socket.socket | None,
        commit: Callable[[LaunchedProcess], None],
        stderr: int | None = None,
    ) -> LaunchedProcess:
        """Start the agent. ``commit`` records its process first: only then does the agent run, so no unrecorded agent
        exists.

        ``stderr``: descriptor for the launcher's standard error; default: discarded.
        """
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with control:
            with theirs:
                launcher = self._spawn(words, theirs, listener, stderr)
            try:
                async with asyncio.timeout(_LAUNCH_TIMEOUT_S):
                    pid = int(await _expect(control, b"pid"))
                    await _expect(control, b"ready")
                    started = LaunchedProcess(pid, start_time(pid) or 0)
                    commit(started)
                    control.send(b"go")
                    await _expect(control, b"")
                    return started
            except TimeoutError:
                raise errors.ProviderTimeout(f"The sandbox was not ready within {_LAUNCH_TIMEOUT_S:g} s.") from None
            finally:
                await _reap(launcher)

    def attempt(self, words: Sequence[str], seconds: float) -> str | None:
        """Try a plan that ends in ``done``. None if all of it works here, else the reason why not."""
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(seconds)
        with control:
            with theirs:
                try:
                    launcher = self._spawn(words, theirs)
                except errors.ProviderUnavailable as error:
                    return error.message
            try:
                while message := control.recv(4096):
                    if message.startswith(b"error "):
                        return _refusal(message.removeprefix(b"error ")).text
                    if message.startswith(b"ready"):
                        return None
            except TimeoutError:
                return f"no answer within {seconds:g} s."
            finally:
                os.waitpid(launcher, 0)
        return "the launcher ended without a message."

    def _spawn(
        self,
        words: Sequence[str],
        control: socket.socket,
        listener: socket.socket | None = None,
        stderr: int | None = None,
    ) -> int:
        with contextlib.ExitStack() as opened:

            def duplicate(descriptor: int) -> int:
                """Duplicate to a number above those that the launcher expects."""
                copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
                opened.callback(os.close, copy)
                return copy

            plan = os.memfd_create("plan", os.MFD_CLOEXEC)
            opened.callback(os.close, plan)
            os.write(plan, b"".join(os.fsencode(word) + b"\0" for word in words))
            os.lseek(plan, 0, os.SEEK_SET)
            # Opened anew for each launch: descriptors of the same open file share their position.
            filters = os.open(f"/proc/self/fd/{self._filters}", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, filters)
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, null)
            places = {
                PLAN_FD: duplicate(plan),
                1: duplicate(null),
                2: duplicate(null if stderr is None else stderr),
                CONTROL_FD: duplicate(control.fileno()),
                LISTEN_FD: duplicate(null if listener is None else listener.fileno()),
                FILTER_FD: duplicate(filters),
            }
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in places.items()]
            try:
                # posix_spawn: forking a large server costs more than starting the whole sandbox.
                return os.posix_spawn(self._program, ["paddock-launch"], {}, file_actions=actions)
            except OSError as error:
                raise errors.ProviderUnavailable(f"The launcher could not be started: {error}") from error


def listen(folder: Path, name: str) -> socket.socket:
    """The agent's socket. Its path may exceed the maximum of a unix address, so the directory is given by
    descriptor."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (folder / name).unlink(missing_ok=True)
        made.bind(f"/proc/self/fd/{directory}/{name}")
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    finally:
        os.close(directory)
    return made


def connect(folder: Path, name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            made.setblocking(False)
            made.connect(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
    except OSError as error:
        made.close()
        raise errors.ProviderUnavailable(f"The sandbox's agent cannot be reached: {error.strerror}.") from error
    return made


def namespaces_used_up() -> str:
    """Error text for ENOSPC from creating a namespace, which otherwise reads as a full disk. The kernel does not tell
    which limit was reached; a sandbox uses one namespace of each kind, so it is the lowest."""
    limits = {}
    for kind in _NAMESPACE_KINDS:
        with contextlib.suppress(OSError, ValueError):
            limits[f"user.max_{kind}_namespaces"] = int(Path(f"/proc/sys/user/max_{kind}_namespaces").read_text())
    name, value = min(limits.items(), key=lambda one: one[1], default=("user.max_user_namespaces", 0))
    sudo = "" if os.geteuid() == 0 else "sudo "
    return (
        f"the kernel's limit of namespaces is used up ({name} is {value}). Delete sandboxes, or raise it: "
        f"{sudo}sysctl -w {name}={max(2 * value, _RECOMMENDED_NAMESPACES)}"
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    number: int
    step: str
    text: str


def _refusal(message: bytes) -> _Refusal:
    """Parses what follows ``error`` in the launcher's message."""
    number, step, text = [*message.decode(errors="replace").split(" ", 2), "", ""][:3]
    if int(number) == errno.ENOSPC and step in _NAMESPACE_STEPS:
        return _Refusal(int(number), step, namespaces_used_up())
    return _Refusal(int(number), step, f"{text}.")


async def _expect(control: socket.socket, word: bytes) -> bytes:
    """The launcher's next message, which must begin with ``word``; an empty word expects the end of the stream."""
    message = await asyncio.get_running_loop().sock_recv(control, 4096)
    if not message and not word:
        return b""
    verb, _, rest = message.partition(b" ")
    if message and verb == word:
        return rest
    if verb == b"error":
        said = _refusal(rest)
        raise LaunchFailed(
            f"The sandbox could not be started ({said.step}): {said.text}", details={"errno": said.number}
        )
    raise errors.ProviderUnavailable("The launcher ended without a message; see the system's log.")


async def _reap(pid: int) -> None:
    """Wait for the launcher, which has ended or is about to."""
    try:
        done, _ = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - WNOHANG does not wait
        if not done:
            await asyncio.to_thread(os.waitpid, pid, 0)
    except ChildProcessError:
        pass  # a program that embeds this server reaps all children itself
