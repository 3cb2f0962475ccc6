"""A request body that becomes a file: read in chunks, or spliced from the socket where possible."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from paddock.gateway.asgi_extensions import DIRECT_BODY, BodyCut, DirectBody


class Upload(AsyncIterator[bytes]):
    def __init__(self, scope: Scope, chunks: AsyncIterator[bytes]) -> None:
        self._direct: DirectBody | None = scope.get("extensions", {}).get(DIRECT_BODY)
        self._chunks = chunks
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._begun = True
        return await anext(self._chunks)

    async def copy_to(self, file: int) -> int | None:
        if self._direct is None or self._begun:
            return None
        try:
            return await self._direct.copy_to(file)
        except BodyCut:
            raise ClientDisconnect from None
