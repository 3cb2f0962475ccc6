"""Parameters of paths, queries and headers, validated by the same rules as bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from re import Pattern
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator

from paddock import errors, ids
from paddock.models import MAX_WAIT, SandboxPath, UserName


class RouteTable:
    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._fixed: dict[str, set[str]] = {}
        self._patterns: list[tuple[Pattern[str], set[str]]] = []
        for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
            methods = route.methods or set()
            if "{" in route.path:
                self._patterns.append((route.path_regex, methods))
            else:
                self._fixed.setdefault(route.path, set()).update(methods)

    def methods(self, path: str) -> list[str]:
        """The methods of this path; for a fixed path only its own, even if a pattern also matches."""
        if path in self._fixed:
            return sorted(self._fixed[path])
        return sorted({method for pattern, methods in self._patterns if pattern.match(path) for method in methods})

    def is_fixed(self, path: str) -> bool:
        return path in self._fixed


_PROCESS_ID = re.compile(ids.PROCESS_ID_PATTERN)
_MAX_OFFSET = 2**53
"""The largest integer that every JSON parser represents exactly."""


async def _sandbox_id(
    request: Request,
    sandbox_id: Annotated[
        str,
        Path(
            description="`{user_id}_{8 hex}`",
            examples=["alice_1f2e3d4c"],
            json_schema_extra={"pattern": ids.SANDBOX_ID_PATTERN},
        ),
    ],
) -> str:
    """An impossible id is "not found" instead of invalid, so that clients have one case to handle."""
    if not ids.is_sandbox_id(sandbox_id):
        table: RouteTable = request.app.state.routes
        if table.is_fixed(request.url.path):
            # `/sandboxes/create` and similar paths also match `/sandboxes/{sandbox_id}`, which has other methods.
            raise errors.MethodNotAllowed("This route does not take this method; see the Allow header.")
        raise errors.SandboxNotFound.by_id(sandbox_id[:200])
    return sandbox_id


async def _process_id(
    process_id: Annotated[
        str, Path(examples=["p_0123456789abcdef"], json_schema_extra={"pattern": ids.PROCESS_ID_PATTERN})
    ],
) -> str:
    check_process_id(process_id)
    return process_id


def check_process_id(process_id: str) -> None:
    if not _PROCESS_ID.fullmatch(process_id):
        raise errors.ProcessNotFound(f"There is no process {process_id[:80]!r} in this sandbox.")


def _day(text: str) -> str:
    date.fromisoformat(text)
    return text


SandboxIdHere = Annotated[str, Depends(_sandbox_id)]
ProcessIdHere = Annotated[str, Depends(_process_id)]
PathQuery = Annotated[SandboxPath, Query()]
UserQuery = Annotated[UserName, Query()]
Offset = Annotated[int, Query(ge=0, le=_MAX_OFFSET, description="In bytes.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
WaitQuery = Annotated[float, Query(ge=0, le=MAX_WAIT, allow_inf_nan=False, description="Seconds.")]
Day = Annotated[
    str,
    AfterValidator(_day),
    Query(
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        json_schema_extra={"format": "date"},
        description="In UTC.",
        examples=["2030-01-31"],
    ),
]
IDEMPOTENCY_KEY = r"^[\x20-\x7e]{1,255}$"
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=IDEMPOTENCY_KEY,
        description="A request that is sent again with the same key is not carried out again.",
    ),
]
