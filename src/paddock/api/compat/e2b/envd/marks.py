"""Marker files under ``/run/e2b``, by which programs detect an E2B sandbox and its id."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator

from paddock import errors
from paddock.api.compat.e2b.envd.inside import EnvdContext
from paddock.api.compat.e2b.envd.users import ROOT

FOLDER = "/run/e2b"
_MOST = 10_000


class MarkerFiles:
    """Written once after each start of a sandbox, because a restart may have removed them."""

    def __init__(self) -> None:
        self._put: OrderedDict[tuple[str, float | None], None] = OrderedDict()

    async def put(self, inside: EnvdContext) -> None:
        start = (inside.sandbox.sandbox_id, inside.sandbox.started_at)
        if start in self._put:
            return
        self._put[start] = None
        if len(self._put) > _MOST:
            self._put.popitem(last=False)
        texts = {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": inside.sandbox.key,
            "E2B_TEMPLATE_ID": inside.sandbox.template_id,
        }
        await asyncio.gather(*(_write(inside, f"{FOLDER}/.{name}", text) for name, text in texts.items()))


async def _write(inside: EnvdContext, path: str, text: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield text.encode()

    try:
        await inside.machine.write_file(path, content(), user=ROOT)
    except (errors.PathConflict, errors.PathDenied):
        return  # the disk is full, or the path is taken: run the command anyway
