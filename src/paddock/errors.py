"""The one tree of errors. Each knows its HTTP status and its wire code, so every surface answers the same way.

The wire shape is ``{"success": false, "error": {"code", "message", "status", "details", "request_id"}}``.
A message says what went wrong and, where there is one, what to do next. It travels to callers, rows and logs, so
secrets that came with what it quotes are taken out when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from paddock.redaction import redact


class PaddockError(Exception):
    """Base of everything Paddock raises on purpose."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        message = redact(message)
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        self.request_id: str | None = None

    def __str__(self) -> str:
        return self.message


class Invalid(PaddockError):
    """The request is well-formed but says something that cannot be done."""

    status = 422
    code = "invalid_request"


class ImageInvalid(Invalid):
    """A name that no image can have, or an image that cannot be used here: the message says what is wrong with it."""

    code = "image_invalid"


class InputTooCostly(Invalid):
    """What was asked for would take more time or memory than one request may have."""

    code = "input_too_costly"


class MalformedRequest(PaddockError):
    status = 400
    code = "malformed_request"


class Unauthorized(PaddockError):
    status = 401
    code = "unauthorized"


class Forbidden(PaddockError):
    status = 403
    code = "forbidden"


class NotFound(PaddockError):
    status = 404
    code = "not_found"


class SandboxNotFound(NotFound):
    """Also the answer for another's sandbox: existence is private."""

    code = "sandbox_not_found"

    @classmethod
    def by_id(cls, sandbox_id: str) -> SandboxNotFound:
        return cls(
            f"There is no sandbox {sandbox_id!r} that this key can see.",
            details={"sandbox_id": sandbox_id[:200]},
        )


class ProcessNotFound(NotFound):
    code = "process_not_found"


class PathNotFound(NotFound):
    code = "file_not_found"


class TemplateNotFound(NotFound):
    code = "template_not_found"


class ServiceNotFound(NotFound):
    code = "service_not_found"


class CodeContextNotFound(NotFound):
    code = "code_context_not_found"


class ToolNotFound(NotFound):
    code = "tool_not_found"


class McpServerNotFound(NotFound):
    code = "mcp_server_not_found"


class AddonNotFound(NotFound):
    code = "addon_not_found"


class ImageNotFound(NotFound):
    code = "image_not_found"


class KeyNotFound(NotFound):
    code = "key_not_found"


class UserNotFound(NotFound):
    code = "user_not_found"


class MethodNotAllowed(PaddockError):
    status = 405
    code = "method_not_allowed"


class Conflict(PaddockError):
    status = 409
    code = "conflict"


class SandboxBusy(Conflict):
    """Another operation on this sandbox has not finished in the time we are willing to wait."""

    code = "sandbox_busy"


class SandboxGone(Conflict):
    """The sandbox is being deleted, or has failed and can only be deleted."""

    code = "sandbox_gone"


class SandboxFailed(Conflict):
    code = "sandbox_failed"


class Asleep(Conflict):
    """The sandbox is paused, and this is not something that wakes it."""

    code = "sandbox_paused"


class SandboxExhausted(Conflict):
    """The sandbox has used up what it may have of something: processes, memory, open files."""

    code = "sandbox_exhausted"


class PathConflict(Conflict):
    """The path is of the wrong kind for the operation: a directory where a file is meant, not empty, in the way."""

    code = "path_conflict"


class RegistryDenied(Forbidden):
    """A registry refuses the server's credentials, or wants some."""

    code = "registry_denied"


class PathDenied(Forbidden):
    code = "path_denied"

    @classmethod
    def of(cls, path: str, *, read_only: bool) -> PathDenied:
        why = "Read-only file system" if read_only else "Permission denied"
        return cls(
            f"{why}: {path!r}. Use a path below /workspace or /home/user"
            + ("." if read_only else ", or run a command with sudo."),
            details={"path": path[:1000]},
        )


class ProcessEnded(Conflict):
    code = "process_ended"


class ServiceFailed(Conflict):
    """A service of the sandbox ended, or did not answer in time. The message has the last of its output."""

    code = "service_failed"


class InterpreterFailed(Conflict):
    """The code interpreter in the sandbox does not do what it should; what runs beside it may have broken it."""

    code = "interpreter_failed"


class BrowserFailed(Conflict):
    """The browser in the sandbox does not answer as it should; what runs beside it may have broken it."""

    code = "browser_failed"


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"


class AlreadyExists(Conflict):
    code = "already_exists"


class PayloadTooLarge(PaddockError):
    status = 413
    code = "payload_too_large"


class RangeNotSatisfiable(PaddockError):
    status = 416
    code = "range_not_satisfiable"


class TooManyRequests(PaddockError):
    status = 429
    code = "rate_limited"


class QuotaExceeded(TooManyRequests):
    code = "quota_exceeded"


class TooManyBytes(TooManyRequests):
    """The requests and answers of one user hold as much of the server's memory as they may."""

    code = "too_many_bytes"


class Unavailable(PaddockError):
    """Something that we depend on does not answer. Nothing was half-done that we do not know of."""

    status = 503
    code = "unavailable"


class Overloaded(Unavailable):
    """The server holds as much for its clients as it may. Nothing was done."""

    code = "overloaded"


class StoreUnavailable(Unavailable):
    code = "database_unavailable"


class StoreFull(StoreUnavailable):
    """There is no room for the change on the disk under the database."""


class ProviderUnavailable(Unavailable):
    """The provider could not be asked, or answered nonsense: its state is unknown, which is never 'gone'."""

    code = "provider_unavailable"


class ProviderTimeout(ProviderUnavailable):
    code = "provider_timeout"


class SandboxElsewhere(PaddockError):
    """The sandbox lives on another machine, which this server cannot act on; the message says which."""

    status = 421
    code = "sandbox_elsewhere"


class ProviderRefused(Unavailable):
    """The provider answered with a definite no: nothing was done."""

    code = "provider_refused"


class Unsupported(PaddockError):
    """This provider cannot do it, and says so."""

    status = 501
    code = "unsupported"


class ConfinementUnavailable(Unsupported):
    """The isolation, egress or mounts that were asked for cannot be had here. Nothing was done.

    Asking for others helps, asking again does not.
    """

    status = 409
    code = "confinement_unavailable"


class InterpreterMissing(Unsupported):
    """The sandbox cannot run code of this kind as it is; the message says what to install."""

    code = "interpreter_missing"


class AddonMissing(Unsupported):
    """The sandbox lacks a large program; the message says how to install it."""

    code = "addon_missing"


class AddonFailed(Unavailable):
    """An add-on could not be installed. Nothing of it was left behind."""

    code = "addon_failed"


class RegistryUnavailable(Unavailable):
    """A registry cannot be reached, stopped sending, or answered nonsense. What was downloaded is kept."""

    code = "registry_unavailable"


class ImageCorrupt(Unavailable):
    """What a registry or an archive gave is not what the digest says. Nothing of it was kept."""

    code = "image_corrupt"


class InsufficientStorage(PaddockError):
    """There is no room for it on a disk. Nothing was done that could not be done whole."""

    status = 507
    code = "insufficient_storage"


class DiskFull(InsufficientStorage):
    """There is no room left for it on the sandbox's disk."""

    code = "disk_full"


class DiskFailed(InsufficientStorage):
    """The file system of the sandbox's disk met an error and takes no more writes, until it is repaired."""

    code = "disk_failed"


class HostDiskFull(InsufficientStorage):
    """The host has less room left than it must keep, or has promised as much as it may."""

    code = "host_disk_full"


class ShuttingDown(Unavailable):
    code = "shutting_down"


class InternalError(PaddockError):
    """A defect of ours, answered in the one shape and logged with its request id."""


def every_error(root: type[PaddockError] = PaddockError) -> Iterator[type[PaddockError]]:
    """The whole tree, root first."""
    yield root
    for child in root.__subclasses__():
        yield from every_error(child)


def error_for(
    code: str, status: int, message: str, details: dict[str, Any] | None = None, retry_after: float | None = None
) -> PaddockError:
    """The error that a wire answer stands for: by code, else by status, so that a newer server still makes sense."""
    by_code = {kind.code: kind for kind in every_error() if "code" in vars(kind)}
    by_status = {kind.status: kind for kind in reversed(list(every_error()))}
    kind = by_code.get(code) or by_status.get(status) or PaddockError
    return kind(message, details=details, retry_after=retry_after)
