"""Where a chunked body ends, however its bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import errors
from paddock.http1.body import ChunkedEnd


def encode(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    st.binary(max_size=50),
    st.integers(min_value=1, max_value=400),
    st.sampled_from([b"", b"X-Trailer: 1\r\n"]),
)
def test_it_is_found_to_the_byte(pieces: list[bytes], rest: bytes, step: int, trailer: bytes) -> None:
    body = encode(pieces, trailer)
    data, end, counted = body + rest, ChunkedEnd(), 0
    for at in range(0, len(data), step):
        counted += end.feed(memoryview(data[at : at + step]))
    assert end.done
    assert counted == len(body)


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=50))
def test_it_is_the_same_in_whatever_pieces_it_comes(data: bytes, step: int) -> None:
    def feed(by: int) -> tuple[int, bool] | str:
        end, counted = ChunkedEnd(), 0
        try:
            for at in range(0, len(data), by):
                counted += end.feed(memoryview(data[at : at + by]))
        except errors.MalformedRequest:
            return "malformed"
        return counted, end.done

    assert feed(step) == feed(max(1, len(data)))


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"g\r\n",
        b"5\n",
        b"5\rhello\n",
        b"2\r\nhix\r\n",
        b"2\r\nhi\n",
        b"1" * 16 + b"\r\n",
        b"5;" + b"x" * 5000,
        b"0\r\nA: 1\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    with pytest.raises(errors.MalformedRequest):
        ChunkedEnd().feed(memoryview(data))
