"""Operations of several calls: a generator that yields calls and receives their answers, run by either client.

So the sync and async forms share one implementation. A failed call raises its error at the ``yield``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from paddock.client.call import ApiCall, RunsAsync, RunsSync
from paddock.errors import PaddockError

T = TypeVar("T")

Steps = Generator[ApiCall[Any], Any, T]


def ask(call: ApiCall[T]) -> Steps[T]:
    """One call with a typed answer: ``box = yield from ask(get_status(sandbox_id))``."""
    answer: T = yield call
    return answer


def carry_out(client: RunsSync, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            call = steps.throw(answer) if isinstance(answer, PaddockError) else steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answer = client._run(call)
        except PaddockError as error:
            answer = error


async def carry_out_async(client: RunsAsync, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            call = steps.throw(answer) if isinstance(answer, PaddockError) else steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answer = await client._run(call)
        except PaddockError as error:
            answer = error
