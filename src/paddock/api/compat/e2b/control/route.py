"""Authorization and error format of every route of the control plane."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import structlog
from fastapi import Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paddock import errors
from paddock.api.auth import Calling, GuardedRoute
from paddock.api.compat.e2b.errors import E2BError, e2b_response, sandbox_not_found
from paddock.api.failures import request_id_of
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

_SANDBOX_ID = re.compile(r"[a-z0-9]+", re.ASCII)


class E2BRoute(GuardedRoute):
    """Converts every error, also the framework's, to E2B's format."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except errors.SandboxNotFound:
                return e2b_response(sandbox_not_found(str(request.path_params.get("sandbox_id", "")).partition("-")[0]))
            except (E2BError, errors.PaddockError, RequestValidationError, HTTPException, ClientDisconnect) as problem:
                return e2b_response(problem)
            except ValidationError as problem:
                found = [{**error, "loc": ("body", *error["loc"])} for error in problem.errors()]
                return e2b_response(RequestValidationError(found))
            except Exception as problem:
                log.exception("unexpected failure", request_id=request_id_of(request))
                return e2b_response(problem)

        return answered


def done() -> Response:
    """204, with the Content-Length that E2B's JavaScript client requires."""
    return Response(status_code=204, headers={"Content-Length": "0"})


async def _sandbox(caller: Calling, sandbox_id: Annotated[str, Path()]) -> SandboxRow:
    """The sandbox with this id. Older clients append a client id."""
    key = sandbox_id.partition("-")[0]
    if not _SANDBOX_ID.fullmatch(key):
        raise E2BError(400, "Invalid sandbox ID")
    try:
        sandbox = await caller.context.controller.by_key(key)
    except errors.SandboxNotFound:
        raise sandbox_not_found(key) from None
    if not (caller.who.is_admin or sandbox.owner_id == caller.who.user_id):
        raise sandbox_not_found(key)
    return sandbox


SandboxHere = Annotated[SandboxRow, Depends(_sandbox)]
