"""Failures as E2B's clients read them: ``{"code": <status>, "message": …}``, also for routes that do not exist.

They raise on anything else, tell "not found" by the code in the body, and retry 429 and 503 by themselves unless a
header says not to; so one that will not change by waiting says so.
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
"""The status of what Paddock does not have. Nothing retries it, and every SDK raises it with its message."""


class E2BError(Exception):
    """A failure in E2B's own words."""

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
    """What a raised exception means to an E2B client."""
    if isinstance(problem, E2BError):
        return problem
    error = as_error(problem)
    code = "idempotency_request_mismatch" if isinstance(error, errors.IdempotencyMismatch) else None
    # E2B has no 422: what is not valid is a bad request.
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
        headers["Connection"] = "close"  # the rest of the body is not worth reading
    # Escaped to ASCII: whatever is in a message, every parser takes it.
    body = json.dumps(answer.body()).encode("ascii", "backslashreplace")
    return Response(body, answer.status, headers=headers, media_type="application/json")


def _retry_headers(problem: Exception, status: int) -> dict[str, str]:
    if status not in (429, 501, 502, 503, 504):
        return {}
    after = getattr(problem, "retry_after", None)
    if after is not None:
        return {"Should-Retry": "true", "Retry-After": str(max(1, math.ceil(after)))}
    # Nothing was begun where the database did not answer. Of a provider that does not, nobody knows: a create that is
    # sent again could make a second sandbox.
    return {"Should-Retry": "true" if isinstance(problem, errors.StoreUnavailable) else "false"}
