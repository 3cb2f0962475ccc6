"""Errors in the format of E2B's clients: ``{"code": <status>, "message": …}``, also for unknown routes.

Clients cannot read another format, detect "not found" by the code in the body, and retry 429 and 503 unless a header
forbids it; errors that do not change over time set that header.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from paddock import errors
from paddock.api.failures import as_error

NOT_AVAILABLE = 501
"""Status of features that Paddock does not have. No client retries it, and every SDK raises it with its message."""


class E2BError(Exception):
    """An error with E2B's own wording."""

    def __init__(self, status: int, message: str, *, error_code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_code = error_code

    def body(self) -> dict[str, Any]:
        code = {} if self.error_code is None else {"error_code": self.error_code}
        return {"code": self.status, "message": self.message, **code}


def sandbox_not_found(sandbox_id: str) -> E2BError:
    return E2BError(404, f"Sandbox \"{sandbox_id[:200]}\" doesn't exist or you don't have access to it")


def not_available(what: str) -> E2BError:
    return E2BError(NOT_AVAILABLE, f"{what} not available on this server")


def as_e2b(problem: Exception) -> E2BError:
    """The error that is reported to E2B clients for an exception."""
    if isinstance(problem, E2BError):
        return problem
    error = as_error(problem)
    code = "idempotency_request_mismatch" if isinstance(error, errors.IdempotencyMismatch) else None
    # E2B does not use 422: invalid input is a 400.
    status = 400 if error.status == 422 else error.status
    return E2BError(status, error.message, error_code=code)


def e2b_response(problem: Exception, allow: Sequence[str] = ()) -> Response:
    answer = as_e2b(problem)
    headers = _retry_headers(problem, answer.status)
    if answer.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="paddock"'
    if answer.status == 405 and allow:
        headers["Allow"] = ", ".join(allow)
    if answer.status == 413:
        headers["Connection"] = "close"  # the rest of the body is not read
    # Escaped to ASCII, which every parser accepts.
    body = json.dumps(answer.body()).encode("ascii", "backslashreplace")
    return Response(body, answer.status, headers=headers, media_type="application/json")


def _retry_headers(problem: Exception, status: int) -> dict[str, str]:
    if status not in (429, 501, 502, 503, 504):
        return {}
    after = getattr(problem, "retry_after", None)
    if after is not None:
        return {"Should-Retry": "true", "Retry-After": str(max(1, math.ceil(after)))}
    # If the database did not answer, nothing was started. If a provider did not answer that is unknown: a repeated
    # create could make a second sandbox.
    return {"Should-Retry": "true" if isinstance(problem, errors.StoreUnavailable) else "false"}
