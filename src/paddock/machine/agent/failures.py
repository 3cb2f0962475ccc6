"""Translates the agent's errors, and errno values of descriptors it passed, into Paddock's errors."""

from __future__ import annotations

import errno
import os
from typing import Any

from paddock import errors

_CONFLICTS = {
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "something is there already",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.ELOOP: "it is a symlink that leads in circles",
    errno.ENXIO: "it is not a regular file",
    errno.EBUSY: "it is in use",
    errno.ETXTBSY: "it is a program that is running",
    errno.EXDEV: "it cannot be moved to another file system",
    errno.EFBIG: "the file would be too large",
}
_FULL = {errno.ENOSPC: "there is no space left on the disk", errno.EDQUOT: "the disk quota is used up"}
_TOO_MANY_WATCHES = "too many directories to watch"  # agent/src/watch.c: the kernel's errno is ENOSPC for it, too
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_UNUSABLE = (errno.ENAMETOOLONG, errno.EINVAL)
_EXHAUSTED = {
    errno.EAGAIN: "it has as much going on at once as it may have",
    errno.ENOMEM: "it has used up its memory",
    errno.EMFILE: "it has too many files open",
    errno.ENFILE: "it has too many files open",
}


class LinkLost(errors.ProviderUnavailable):
    """The connection to the agent is lost. An unsent request was not carried out; the outcome of a sent one is
    unknown."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class AgentRefusal(Exception):
    """An ERROR reply of the agent. It does not leave this package: each caller translates it."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.message = message


def of_path(failure: AgentRefusal | OSError, path: str) -> errors.PaddockError:
    number = failure.number if isinstance(failure, AgentRefusal) else failure.errno or 0
    details = {"path": path[:1000]}
    if number == errno.ENOENT:
        return errors.PathNotFound(f"There is no {path!r} in the sandbox.", details=details)
    if full := _full(failure, number, f"{path!r}: ", details):
        return full
    if reason := _CONFLICTS.get(number):
        return errors.PathConflict(f"{path!r}: {reason}.", details=details)
    if number in _DENIED:
        return errors.PathDenied.of(path, read_only=number == errno.EROFS)
    if number in _UNUSABLE:
        why = failure.message if isinstance(failure, AgentRefusal) else "it is not a usable path"
        return errors.Invalid(f"{path[:200]!r} cannot be used: {why or 'it is not a usable path'}.", details=details)
    return _of_machine(failure, number, details)


def of_process(failure: AgentRefusal, process_id: str) -> errors.PaddockError:
    details = {"process_id": process_id[:200]}
    if failure.number == errno.ESRCH:
        return not_found(process_id)
    if failure.number == errno.EPIPE:
        return errors.ProcessEnded(
            f"Process {process_id!r} has ended, or its input was closed: it reads no more.", details=details
        )
    if failure.number == errno.EBADF:
        return errors.Conflict(f"Process {process_id!r} was started without a pipe for its input.", details=details)
    if failure.number == errno.ENOTTY:
        return errors.Conflict(f"Process {process_id!r} does not run on a terminal.", details=details)
    if failure.number == errno.EINVAL:
        return errors.Invalid(failure.message or "That cannot be done with a process.", details=details)
    return _of_machine(failure, failure.number, details)


def of_spawn(failure: AgentRefusal, cwd: str) -> errors.PaddockError:
    """For a command that was not started. A missing program is not a refusal: it ends with exit code 127, as in a
    shell."""
    if full := _full(failure, failure.number, "The sandbox cannot start the command: ", {}):
        return full
    if reason := _EXHAUSTED.get(failure.number):
        return errors.SandboxExhausted(f"The sandbox cannot start the command: {reason}.")
    if failure.number == errno.E2BIG:
        return errors.Invalid("The command is too long, or its environment too large, for the kernel.")
    if failure.number in (errno.EINVAL, errno.ENOEXEC):
        return errors.Invalid(f"The command could not be started: {failure.message or 'it is not valid'}.")
    return of_path(failure, cwd)


def of_port(failure: AgentRefusal, port: int) -> errors.PaddockError:
    details = {"port": port}
    if failure.number == errno.ECONNREFUSED:
        return errors.Conflict(f"Nothing listens on port {port} in the sandbox.", details=details)
    if failure.number == errno.EADDRINUSE:
        return errors.Conflict(f"Port {port} is taken by a process in the sandbox.", details=details)
    if failure.number in (errno.EACCES, errno.EPERM):
        return errors.Forbidden(f"Port {port} may not be used in the sandbox.", details=details)
    if failure.number in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNRESET):
        return errors.Conflict(f"Port {port} in the sandbox does not answer.", details=details)
    return _of_machine(failure, failure.number, details)


def of_request(failure: AgentRefusal) -> errors.PaddockError:
    """For requests without a path, process or port that the error could be about."""
    return _of_machine(failure, failure.number, {})


def not_found(process_id: str) -> errors.ProcessNotFound:
    return errors.ProcessNotFound(
        f"There is no process {process_id[:100]!r} in the sandbox.", details={"process_id": process_id[:200]}
    )


def _full(
    failure: AgentRefusal | OSError, number: int, what: str, details: dict[str, Any]
) -> errors.PaddockError | None:
    reason = _FULL.get(number)
    if reason is None:
        return None
    if isinstance(failure, AgentRefusal) and failure.message == _TOO_MANY_WATCHES:
        return errors.SandboxExhausted(f"{what}{failure.message}.", details=details)
    return errors.DiskFull(f"{what}{reason}.", details=details)


def _of_machine(failure: AgentRefusal | OSError, number: int, details: dict[str, Any]) -> errors.PaddockError:
    if full := _full(failure, number, "The sandbox cannot do it now: ", details):
        return full
    if reason := _EXHAUSTED.get(number):
        return errors.SandboxExhausted(f"The sandbox cannot do it now: {reason}.", details=details)
    said = failure.message if isinstance(failure, AgentRefusal) else ""
    return errors.ProviderRefused(f"The sandbox refused: {said or os.strerror(number)}.", details=details)
