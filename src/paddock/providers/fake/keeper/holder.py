"""Bubblewrap, and how to get into it: the namespaces that every command of the sandbox shares."""

from __future__ import annotations

import fcntl
import os

from .procfs import start_time

NS_GET_PARENT = 0xB702


class Holder:
    """Starts it and waits until it is whole; ends this process when that fails (the reason is in the log)."""

    def __init__(self, command: list[str]) -> None:
        info, info_in = os.pipe()
        ready, ready_in = os.pipe()
        os.set_inheritable(info_in, True)
        argv = [command[0], "--info-fd", str(info_in), *command[1:]]
        actions = [(os.POSIX_SPAWN_DUP2, ready_in, 1)]
        self.monitor = os.posix_spawnp(argv[0], argv, {"PATH": os.environ["PATH"]}, file_actions=actions)
        os.close(info_in)
        os.close(ready_in)
        text = _read_all(info)
        # The command inside says when it runs: only then are mounts and the inner user namespace in place.
        said = os.read(ready, 64)
        os.close(ready)
        if b'"child-pid"' not in text or not said:
            raise SystemExit(1)
        self.init = int(text.partition(b'"child-pid":')[2].split(b",")[0].strip(b" }\n"))
        self.started = start_time(self.init)
        self.user_namespace = self._outer_user_namespace()
        self._own_cgroups = not os.path.samefile(f"/proc/{self.init}/ns/cgroup", "/proc/self/ns/cgroup")  # noqa: PTH121

    def _outer_user_namespace(self) -> str:
        """Bubblewrap stacks two when it mounts ``/dev``; the outer owns the other namespaces and is entered first."""
        inner = f"/proc/{self.init}/ns/user"
        inner_fd = os.open(inner, os.O_RDONLY)
        own_fd = os.open("/proc/self/ns/user", os.O_RDONLY)
        outer_fd = fcntl.ioctl(inner_fd, NS_GET_PARENT)
        stacked = not os.path.sameopenfile(outer_fd, own_fd)
        os.close(inner_fd)
        os.close(own_fd)
        return f"/proc/{os.getpid()}/fd/{outer_fd}" if stacked else inner

    def enter(self) -> list[str]:
        """A command line that runs the rest of it inside; it needs no privilege beyond owning the namespaces."""
        inner = f"/proc/{self.init}/ns/user"
        argv = ["nsenter", "--preserve-credentials", "-t", str(self.init), "-U", "-m", "-p", "-n", "-i", "-u"]
        if self._own_cgroups:
            argv.append("-C")
        if self.user_namespace != inner:
            argv = ["nsenter", "--preserve-credentials", f"--user={self.user_namespace}", "--", *argv]
        return [*argv, "--"]


def _read_all(fd: int) -> bytes:
    data = b""
    while chunk := os.read(fd, 4096):
        data += chunk
    os.close(fd)
    return data
