"""The wire: what is written comes back the same, and no bytes at all lead to anything but a frame or a clear error."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock import errors
from paddock.machine.agent import replies
from paddock.machine.agent.wire import (
    HEADER,
    MAX_PAYLOAD,
    Frame,
    FrameSplitter,
    ProtocolError,
    Reader,
    ReplyKind,
    RequestKind,
    Writer,
)
from paddock.machine.base import FileType, ProcessStatus, Stream
from tests.machine import peer

DECODERS: list[Callable[[Reader], Any]] = [
    replies.read_refusal,
    replies.read_process,
    replies.read_processes,
    replies.read_data,
    replies.read_output,
    replies.read_entry,
    replies.read_event,
    replies.read_usage,
]
GOOD = [
    peer.refusal(2),
    peer.process("p_1"),
    struct.pack("<I", 2) + peer.process("p_1") + peer.process("p_2", 2, 0),
    peer.data(1, 0, b"data"),
    struct.pack("<Q", 3) + peer.text(b"data"),
    peer.entry("/workspace/file"),
    b"\x01" + peer.text("/workspace/file"),
    struct.pack("<QQQQI", 1, 2, 3, 4, 5),
]


def split(data: bytes) -> list[Frame]:
    return list(FrameSplitter().feed(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes) -> None:
    try:
        frames = split(data)
    except ProtocolError:
        return
    assert all(isinstance(frame.kind, ReplyKind) and frame.number for frame in frames)


@given(
    st.lists(
        st.tuples(st.sampled_from(list(ReplyKind)), st.integers(1, 2**32 - 1), st.binary(max_size=40)), max_size=8
    ),
    st.lists(st.integers(0, 300), max_size=10),
)
def test_frames_come_out_the_same_however_the_stream_is_cut(
    frames: list[tuple[ReplyKind, int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(HEADER.pack(len(body), kind, 0, 0, number) + body for kind, number, body in frames)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = FrameSplitter()
    found = [frame for begin, end in itertools.pairwise(places) for frame in splitter.feed(stream[begin:end])]
    assert [(frame.kind, frame.number, frame.payload) for frame in found] == frames
    assert not splitter.inside_a_frame


def test_a_frame_of_the_largest_size_comes_through_in_small_pieces() -> None:
    body = bytes(range(256)) * (MAX_PAYLOAD // 256)
    stream = HEADER.pack(len(body), ReplyKind.BYTES, 0, 0, 5) + body + HEADER.pack(0, ReplyKind.OK, 0, 0, 6)
    splitter = FrameSplitter()
    found = [frame for at in range(0, len(stream), 9973) for frame in splitter.feed(stream[at : at + 9973])]
    assert [frame.number for frame in found] == [5, 6]
    assert found[0].payload == body


@pytest.mark.parametrize(
    "header",
    [
        (MAX_PAYLOAD + 1, ReplyKind.OK, 0, 0, 1),
        (2**32 - 1, ReplyKind.OK, 0, 0, 1),
        (0, RequestKind.SPAWN, 0, 0, 1),
        (0, 0, 0, 0, 1),
        (0, ReplyKind.OK, 2, 0, 1),
        (0, ReplyKind.OK, 0, 1, 1),
        (0, ReplyKind.OK, 0, 0, 0),
    ],
    ids=["large", "huge", "a request", "no type", "two descriptors", "reserved", "no number"],
)
def test_a_wrong_header_is_refused_before_its_payload_is_waited_for(header: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        split(HEADER.pack(*header))


def test_good_frames_before_a_bad_one_are_still_given() -> None:
    given_frames = FrameSplitter().feed(HEADER.pack(0, ReplyKind.OK, 0, 0, 9) + b"\xff" * HEADER.size)
    assert next(given_frames).number == 9
    with pytest.raises(ProtocolError):
        next(given_frames)


@settings(max_examples=400)
@given(st.sampled_from(DECODERS), st.binary(max_size=300))
def test_any_payload_is_an_answer_or_a_protocol_error(decode: Callable[[Reader], Any], payload: bytes) -> None:
    body = Reader(payload)
    try:
        decode(body)
        body.end()
    except ProtocolError:
        pass


@settings(max_examples=400)
@given(st.sampled_from(list(zip(DECODERS, GOOD, strict=True))), st.data())
def test_a_good_payload_with_some_bytes_changed_is_an_answer_or_a_protocol_error(
    pair: tuple[Callable[[Reader], Any], bytes], draw: st.DataObject
) -> None:
    decode, good = pair
    payload = bytearray(good)
    for _ in range(draw.draw(st.integers(1, 4))):
        payload[draw.draw(st.integers(0, len(payload) - 1))] = draw.draw(st.integers(0, 255))
    body = Reader(bytes(payload[: draw.draw(st.integers(0, len(payload)))]))
    try:
        decode(body)
        body.end()
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    ("decode", "good"), list(zip(DECODERS, GOOD, strict=True)), ids=lambda item: getattr(item, "__name__", "")
)
def test_every_cut_and_every_extra_byte_is_noticed(decode: Callable[[Reader], Any], good: bytes) -> None:
    whole = Reader(good)
    decode(whole)
    whole.end()
    for length in range(len(good)):
        with pytest.raises(ProtocolError):
            body = Reader(good[:length])
            decode(body)
            body.end()
    with pytest.raises(ProtocolError):
        body = Reader(good + b"\0")
        decode(body)
        body.end()


@given(
    st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=20), max_size=5),
    st.binary(max_size=50),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
def test_what_is_written_is_what_is_read(texts: list[str], blob: bytes, large: int, signed: int) -> None:
    frame = Writer().texts(texts).blob(blob).u64(large).i32(signed).u8(7).u16(8).u32(9).frame(RequestKind.SPAWN, 3)
    assert HEADER.unpack_from(frame) == (len(frame) - HEADER.size, RequestKind.SPAWN, 0, 0, 3)
    body = Reader(frame[HEADER.size :])
    assert [body.text(1000) for _ in range(body.count(4))] == texts
    assert (body.blob(), body.u64(), body.i32(), body.u8(), body.u16(), body.u32()) == (blob, large, signed, 7, 8, 9)
    body.end()


@pytest.mark.parametrize(
    "write",
    [
        lambda: Writer().text("a\0b"),
        lambda: Writer().text("\ud800"),
        lambda: Writer().u16(1 << 16),
        lambda: Writer().u32(-1),
        lambda: Writer().blob(b"x" * (MAX_PAYLOAD + 1)).frame(RequestKind.STDIN, 1),
    ],
    ids=["nul", "half a character", "too large", "negative", "too long"],
)
def test_what_cannot_be_written_is_the_callers_mistake(write: Callable[[], object]) -> None:
    with pytest.raises(errors.Invalid):
        write()


def test_a_count_that_cannot_fit_is_refused_without_trying() -> None:
    with pytest.raises(ProtocolError):
        replies.read_processes(Reader(struct.pack("<I", 2**32 - 1) + peer.process("p_1")))


def test_the_smallest_things_are_as_small_as_the_counts_assume() -> None:
    assert len(peer.process("")) == replies.SMALLEST_PROCESS
    smallest = len(peer.entry("")) - 2 * len("user")
    assert smallest == replies.SMALLEST_ENTRY


def test_an_answer_is_told_in_our_words() -> None:
    info = replies.read_process(Reader(peer.process("p_1", 4, 137, 5, 6, b"a \xff label")))
    assert (info.status, info.exit_code, info.stdout_size, info.stderr_size) == (ProcessStatus.KILLED, 137, 5, 6)
    assert info.label == "a � label"
    link = replies.read_entry(Reader(peer.entry(b"/a/\xff", 3, target=b"there"))).info
    assert (link.type, link.name, link.symlink_target) == (FileType.SYMLINK, "�", "there")
    assert replies.read_data(Reader(peer.data(2, 9, b"x"))).stream is Stream.STDERR


def test_a_file_from_a_time_without_a_calendar_is_shown_all_the_same() -> None:
    good = peer.entry("/file")
    at = good.index(struct.pack("<Q", peer.MICROSECONDS))
    for wild in (2**64 - 1, 2**63, 2**62):
        found = replies.read_entry(Reader(good[:at] + struct.pack("<Q", wild) + good[at + 8 :]))
        assert 0 <= found.info.modified_at < 253_402_300_800
