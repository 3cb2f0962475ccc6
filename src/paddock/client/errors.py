"""Errors of the connection between client and server, in addition to those that the server reports.

Every error of a client is a :class:`~paddock.errors.PaddockError`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from paddock.errors import PaddockError, Unauthorized, Unavailable, error_for


class ServerUnreachable(Unavailable):
    """The connection failed before anything was sent."""

    code = "server_unreachable"


class AnswerLost(ServerUnreachable):
    """The request was sent but no complete answer was received: it may or may not have been executed."""

    code = "answer_lost"


class UnexpectedAnswer(PaddockError):
    """The answer does not come from a Paddock server."""

    status = 502
    code = "unexpected_answer"


def from_transport(error: httpx.RequestError, url: str) -> PaddockError:
    """The error for a failed connection."""
    failure = _name(error, url)
    failure.__cause__ = error
    return failure


def from_response(response: httpx.Response, *, has_key: bool = True) -> PaddockError:
    """The error for an error status; the response's body must have been read."""
    retry_after = _retry_after(response)
    body = _error_body(response)
    if body is None:
        # Sent by a proxy in front of the server: 502 and 504 mean no more than "unavailable".
        status = 503 if response.status_code in (502, 504) else response.status_code
        error = error_for("", status, _describe(response), retry_after=retry_after)
    else:
        details = body.get("details")
        error = error_for(
            str(body.get("code", "")),
            response.status_code,
            str(body.get("message") or _describe(response)),
            details if isinstance(details, dict) else None,
            retry_after,
        )
        error.request_id = body.get("request_id") or None
    if isinstance(error, Unauthorized) and not has_key:
        error.message = (
            "The server wants an API key and none was found: give api_key, set PADDOCK_API_KEY, or make one with "
            "`paddock keys create NAME` on the server's machine."
        )
    return error


def from_event(data: str) -> PaddockError:
    """The error for an ``error`` event in a stream."""
    try:
        body = json.loads(data)["error"]
        error = error_for(body["code"], body["status"], body["message"], body.get("details"))
        error.request_id = body.get("request_id") or None
    except (ValueError, TypeError, LookupError, AttributeError):
        return UnexpectedAnswer(f"The stream ended with an error that cannot be read: {data[:200]}")
    return error


def _name(error: httpx.RequestError, url: str) -> PaddockError:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return ServerUnreachable(f"No Paddock server answers at {url}. Start one with `paddock up`.")
    if isinstance(error, httpx.TimeoutException):
        return AnswerLost(f"The server at {url} did not answer in time. Whether it was done is not known.")
    reason = str(error) or type(error).__name__
    return AnswerLost(f"The connection to {url} broke before the answer was complete: {reason}")


def _error_body(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else None


def _describe(response: httpx.Response) -> str:
    text = " ".join(response.text.split())[:200]
    if response.is_redirect:
        text = f"it redirects to {response.headers.get('location', 'nowhere')}; is the server's URL right?"
    return f"{response.url} answered {response.status_code} {response.reason_phrase}" + (f": {text}" if text else "")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds, or a date (RFC 9110, 10.2.3)."""
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
