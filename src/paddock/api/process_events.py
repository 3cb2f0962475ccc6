"""A process as server-sent events: ``output`` chunks, and ``exit`` at the end.

The id of an event is ``<stdout>.<stderr>``, the offsets to continue at.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Header

from paddock import errors
from paddock.api.shapes import chunk_answer, process_answer
from paddock.api.sse import READY, ServerSentEvent
from paddock.machine.base import ProcessInfo, Stream
from paddock.runtime.output import Output, whole_characters

LastPosition = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        json_schema_extra={"pattern": r"^\d{1,15}\.\d{1,15}$"},
        description="`<stdout>.<stderr>`: continue after this event.",
    ),
]
_POSITION = re.compile(r"(\d{1,15})\.(\d{1,15})", re.ASCII)


def position(last_event_id: str | None, stdout_offset: int, stderr_offset: int) -> tuple[int, int]:
    """Start after the last event received, otherwise at the given offsets."""
    if not last_event_id:
        return stdout_offset, stderr_offset
    if (found := _POSITION.fullmatch(last_event_id)) is None:
        raise errors.Invalid("Last-Event-ID must be <stdout offset>.<stderr offset>, for example 120.0.")
    return int(found[1]), int(found[2])


async def process_events(
    items: Output, stdout_offset: int = 0, stderr_offset: int = 0, *, announce: bool = False
) -> AsyncGenerator[ServerSentEvent, None]:
    """``announce``: begin with a ``started`` event, for clients that do not know the process id yet."""
    at = {Stream.STDOUT: stdout_offset, Stream.STDERR: stderr_offset}
    begun = False
    async with aclosing(whole_characters(items)) as whole:
        async for item in whole:
            if not isinstance(item, ProcessInfo):
                at[item.stream] = item.end
                yield ServerSentEvent("output", chunk_answer(item), _id(at))
            elif begun:
                yield ServerSentEvent("exit", process_answer(item), _id(at))
            else:
                begun = True
                yield ServerSentEvent("started", process_answer(item), _id(at)) if announce else READY


def _id(at: dict[Stream, int]) -> str:
    return f"{at[Stream.STDOUT]}.{at[Stream.STDERR]}"
