"""Errors in the format of Daytona's clients.

Clients select the exception class by ``source`` and ``code`` if they know these, otherwise by the status, and its text
from ``message``. ``DAYTONA_API`` stands for the control plane, ``DAYTONA_DAEMON`` for the toolbox.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from paddock import errors
from paddock.api.failures import as_error

API = "DAYTONA_API"
DAEMON = "DAYTONA_DAEMON"
NOT_AVAILABLE = 501
"""Status of features that Paddock does not have. No client retries it, and every SDK raises it with its message."""

_CODES: dict[type[errors.PaddockError], str] = {
    errors.PathNotFound: "FILE_NOT_FOUND",
    errors.PathDenied: "FILE_ACCESS_DENIED",
    errors.ProcessNotFound: "PROCESS_NOT_FOUND",
    errors.ProcessEnded: "COMMAND_ALREADY_COMPLETED",
}
_STATUSES = {"COMMAND_ALREADY_COMPLETED": 410}


class DaytonaError(Exception):
    """An error with Daytona's own wording."""

    def __init__(self, status: int, message: str, code: str | None = None, source: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.source = source
        self.retry_after: float | None = None

    def body(self, path: str = "", method: str = "") -> dict[str, Any]:
        """All keys that either of Daytona's servers sends."""
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Error"
        found = {
            "statusCode": self.status,
            "message": self.message,
            "error": phrase,
            "code": self.code or phrase.upper().replace(" ", "_"),
            "source": self.source or API,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "path": path,
        }
        return {**found, "method": method} if method else found


def not_available(what: str) -> DaytonaError:
    return DaytonaError(NOT_AVAILABLE, f"{what} not available on this server", "NOT_SUPPORTED")


def as_daytona(problem: Exception, source: str = API) -> DaytonaError:
    """The error that is reported to Daytona clients for an exception."""
    if isinstance(problem, DaytonaError):
        problem.source = problem.source or source
        return problem
    if isinstance(problem, errors.Asleep):
        return DaytonaError(400, "Sandbox is not started. Start it first.", "SANDBOX_NOT_STARTED", source)
    error = as_error(problem)
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    # Daytona does not use 422: invalid input is a 400. So is a path blocked by a file.
    status = 400 if error.status == 422 or isinstance(error, errors.PathConflict) else error.status
    told = DaytonaError(_STATUSES.get(code or "", status), error.message, code, source)
    told.retry_after = error.retry_after
    return told


def daytona_response(
    problem: Exception, allow: Sequence[str] = (), *, source: str = API, path: str = "", method: str = ""
) -> Response:
    answer = as_daytona(problem, source)
    headers: dict[str, str] = {}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(answer.retry_after)))
    if answer.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="paddock"'
    if answer.status == 405 and allow:
        headers["Allow"] = ", ".join(allow)
    if answer.status == 413:
        headers["Connection"] = "close"  # the rest of the body is not read
    # Escaped to ASCII, which every parser accepts.
    body = json.dumps(answer.body(path[:500], method)).encode("ascii", "backslashreplace")
    return Response(body, answer.status, headers=headers, media_type="application/json")
