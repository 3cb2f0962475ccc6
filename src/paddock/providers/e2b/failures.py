"""What E2B's SDK raises, as errors of our own tree. What is not plainly a no is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from e2b import exceptions

from paddock import errors

_RETRY_SECONDS = 30.0
_DEFINITE = (400, 402, 403, 404, 405, 409, 413, 422)


@contextmanager
def translated(doing: str, *, reference: str = "", asking: bool = False) -> Iterator[None]:
    """``asking``: nothing is done by it, so nobody needs a definite no: all that fails means that it is not known."""
    try:
        yield
    except errors.PaddockError:
        raise
    except (exceptions.SandboxNotFoundException, exceptions.SandboxNotRunningException) as error:
        if asking:
            raise errors.ProviderUnavailable(f"E2B could not {doing}: {error}") from error
        raise errors.SandboxNotFound(f"E2B has no machine {reference!r} that runs.") from error
    except Exception as error:  # what its transports raise is not in the SDK's own tree
        found = _of(error, doing)
        if asking and not isinstance(found, errors.ProviderUnavailable):
            found = errors.ProviderUnavailable(found.message, retry_after=found.retry_after)
        raise found from error


def answered(error: BaseException | None) -> bool:
    """Whether E2B itself said no, so that the same request would hear the same again."""
    if isinstance(error, (exceptions.RateLimitException, exceptions.ServiceBusyException)):
        return True
    return isinstance(error, exceptions.SandboxException) and error.status_code is not None


def _of(error: Exception, doing: str) -> errors.PaddockError:
    if isinstance(error, exceptions.AuthenticationException):
        return errors.ProviderRefused(
            f"E2B does not accept this server's key, and could not {doing}. Set E2B_API_KEY to one that is valid there."
        )
    if isinstance(error, exceptions.RateLimitException):
        return errors.TooManyRequests(
            f"E2B could not {doing}: the account has as many sandboxes, or makes as many requests, as it may. {error}",
            retry_after=_RETRY_SECONDS,
        )
    if isinstance(error, exceptions.ServiceBusyException):
        return errors.ProviderUnavailable(f"E2B is busy, and could not {doing}: {error}", retry_after=_RETRY_SECONDS)
    if isinstance(error, (httpx.TimeoutException, exceptions.TimeoutException, TimeoutError)):
        return errors.ProviderTimeout(f"E2B did not {doing} in time: {error}")
    status = error.status_code if isinstance(error, exceptions.SandboxException) else None
    if isinstance(error, exceptions.InvalidArgumentException) or status in _DEFINITE:
        return errors.ProviderRefused(f"E2B refused to {doing}: {error}")
    return errors.ProviderUnavailable(f"E2B could not be asked to {doing}: {error or type(error).__name__}")
