"""The common error format: converts every exception to a :class:`PaddockError` and then to a response.

Of the input only shortened field names are echoed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response

from paddock import errors
from paddock.models.wording import wording

_MAX_PROBLEMS = 20
_MAX_SUMMARY = 3
_BY_STATUS = {kind.status: kind for kind in reversed(list(errors.every_error()))}
_REALM = 'Bearer realm="paddock"'


def as_error(problem: Exception) -> errors.PaddockError:
    """The error that is reported for an exception."""
    match problem:
        case errors.PaddockError():
            return problem
        case RuntimeError(__cause__=errors.PaddockError() as cause):
            return cause  # starlette's error if the response has started already
        case RequestValidationError() | WebSocketRequestValidationError():
            return _from_validation(problem.errors())
        case HTTPException(status_code=404):
            return errors.NotFound("There is no such route; /docs lists them all.")
        case HTTPException(status_code=405):
            return errors.MethodNotAllowed("This route does not take this method; see the Allow header.")
        case HTTPException(status_code=400):
            return _from_unread_body(problem.__cause__)
        case HTTPException():
            kind = _BY_STATUS.get(problem.status_code, errors.PaddockError)
            return kind(str(problem.detail))
        case ClientDisconnect():
            return errors.MalformedRequest("The connection ended before the body did.")
        case _:
            return errors.InternalError("Internal error; the server's log has the details under this request_id.")


def error_answer(error: errors.PaddockError, request_id: str) -> dict[str, Any]:
    return {
        "success": False,
        "error": {
            "code": error.code,
            "message": _clean(error.message),
            "status": error.status,
            "details": error.details,
            "request_id": request_id,
        },
    }


def error_response(error: errors.PaddockError, request_id: str, allow: Sequence[str] = ()) -> Response:
    # ASCII escapes and no NaN, which every parser accepts.
    body = json.dumps(_plain(error_answer(error, request_id)), allow_nan=False)
    return Response(body.encode(), error.status, headers=_headers(error, allow), media_type="application/json")


def request_id_of(connection: HTTPConnection) -> str:
    return str(connection.scope.get("state", {}).get("request_id", ""))


def _headers(error: errors.PaddockError, allow: Sequence[str]) -> dict[str, str]:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = _REALM
    if error.status == 405 and allow:
        headers["Allow"] = ", ".join(allow)
    if error.status == 413:
        # The rest of the body is not read.
        headers["Connection"] = "close"
    if error.status == 416 and "size" in error.details:
        headers["Content-Range"] = f"bytes */{error.details['size']}"
    return headers


def _from_unread_body(cause: BaseException | None) -> errors.PaddockError:
    """FastAPI reports 400 for every exception while it reads a body, including those not caused by the body."""
    match cause:
        case Exception() if not isinstance(cause, ValueError | RecursionError):
            return as_error(cause)
        case _:  # not UTF-8, not JSON, or nested too deeply
            return errors.MalformedRequest("The body could not be read as JSON.")


def _from_validation(found: Sequence[Any]) -> errors.PaddockError:
    if any(problem.get("type") == "json_invalid" for problem in found):
        where = found[0]["loc"][-1]
        return errors.MalformedRequest(f"The body is not valid JSON (at character {where}).")
    problems = [_problem(problem) for problem in found[:_MAX_PROBLEMS]]
    summary = "; ".join(f"{problem['field']}: {problem['problem']}" for problem in problems[:_MAX_SUMMARY])
    left_out = len(found) - _MAX_SUMMARY
    more = f"; … and {left_out} more" if left_out > 0 else ""
    return errors.Invalid(f"The request is not valid. {summary}{more}", details={"errors": problems})


def _problem(problem: Any) -> dict[str, str]:
    place, *inner = (str(part) for part in problem["loc"])
    text = wording(problem)
    if place == "body" and not inner:
        text = "send a JSON object, with the header Content-Type: application/json" if _no_object(problem) else text
    return {"field": _clean(".".join(inner) or place)[:200], "problem": _clean(text)[:300]}


def _no_object(problem: Any) -> bool:
    return problem.get("type") in {"missing", "model_attributes_type", "model_type"}


def _clean(text: str) -> str:
    """Without lone surrogates, which JSON can represent but UTF-8 cannot."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Convert details to JSON types."""
    match value:
        case dict():
            return {_clean(str(name)): _plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float():
            return value
        case _:
            return _clean(str(value))
