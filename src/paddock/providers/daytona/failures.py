"""What Daytona's SDK raises, as errors of our own tree. What is not plainly a no is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import daytona

from paddock import errors

_RETRY_SECONDS = 30.0
_DEFINITE = (400, 402, 403, 404, 405, 409, 410, 413, 422)
_NOT_FOUND, _RATE, _UNAUTHORIZED = 404, 429, 401


@contextmanager
def translated(doing: str, *, reference: str = "", asking: bool = False) -> Iterator[None]:
    """``asking``: nothing is done by it, so nobody needs a definite no: all that fails means that it is not known."""
    try:
        yield
    except errors.PaddockError:
        raise
    except Exception as error:  # its transports raise what is not in the SDK's own tree
        found = _of(error, doing, reference)
        if asking and not isinstance(found, errors.ProviderUnavailable):
            found = errors.ProviderUnavailable(found.message, retry_after=found.retry_after)
        raise found from error


def status_of(error: BaseException) -> int | None:
    return error.status_code if isinstance(error, daytona.DaytonaError) else None


def _of(error: Exception, doing: str, reference: str) -> errors.PaddockError:
    status = status_of(error)
    if status == _UNAUTHORIZED:
        return errors.ProviderRefused(
            f"Daytona does not accept this server's key, and could not {doing}. Set DAYTONA_API_KEY to one that is "
            "valid there."
        )
    if status == _NOT_FOUND and reference:
        return errors.SandboxNotFound(f"Daytona has no machine {reference!r}.")
    if status == _RATE:
        return errors.TooManyRequests(
            f"Daytona could not {doing}: the account has as many machines, or makes as many requests, as it may. "
            f"{error}",
            retry_after=_RETRY_SECONDS,
        )
    if isinstance(error, (daytona.DaytonaTimeoutError, TimeoutError)):
        return errors.ProviderTimeout(f"Daytona did not {doing} in time: {error}")
    if status in _DEFINITE or isinstance(error, daytona.DaytonaValidationError):
        return errors.ProviderRefused(f"Daytona refused to {doing}: {error}")
    return errors.ProviderUnavailable(f"Daytona could not be asked to {doing}: {error or type(error).__name__}")
