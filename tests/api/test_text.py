"""Text out of bytes: no character is cut in two."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.machine.base import OutputChunk, ProcessInfo, ProcessStatus, Stream
from paddock.runtime.output import Output, cut_tail, whole_characters

ENDED = ProcessInfo("p", ProcessStatus.COMPLETED, 0, 1, "", 0.0, 1.0, 0, 0, False)


@given(st.text(), st.integers(min_value=0))
def test_cutting_the_tail_leaves_whole_characters(text: str, where: int) -> None:
    data = text.encode()
    piece = data[: where % (len(data) + 1)]
    kept = piece[: len(piece) - cut_tail(piece)]
    kept.decode()
    assert len(piece) - len(kept) <= 3


@pytest.mark.parametrize("data", [b"", b"a", b"\x80\x80\x80\x80", b"\xff", b"a\xc0", b"\xf5", "ä".encode()])
def test_what_can_never_become_a_character_is_not_held_back(data: bytes) -> None:
    assert cut_tail(data) == 0


@given(st.text(), st.lists(st.integers(min_value=0, max_value=40)))
async def test_chunks_cut_anywhere_come_out_whole(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})

    async def chunks() -> Output:
        yield ENDED
        for begin, end in itertools.pairwise(edges):
            yield OutputChunk(Stream.STDOUT, begin, data[begin:end])
        yield ENDED

    items = [item async for item in whole_characters(chunks())]
    got, offset = "", 0
    for item in items:
        if isinstance(item, OutputChunk):
            assert item.offset == offset
            got, offset = got + item.data.decode(), item.end
    assert got == text
    assert items[0] is items[-1] is ENDED


async def test_a_tail_without_its_rest_comes_at_the_end() -> None:
    async def chunks() -> AsyncGenerator[OutputChunk | ProcessInfo, None]:
        yield OutputChunk(Stream.STDERR, 0, b"a\xc3")
        yield ENDED

    items = [item async for item in whole_characters(chunks())]
    assert [item.data for item in items if isinstance(item, OutputChunk)] == [b"a", b"\xc3"]
