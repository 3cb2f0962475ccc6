"""Streams: decoded as they come, taken up again where they broke, never silently short."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from paddock.client import AnswerLost, Ended, Output, Started
from paddock.client.sse import EventDecoder
from paddock.errors import SandboxGone
from tests.client.script import ENDED, Script, Step, failure, script

PROCESS = "p_0123456789abcdef"


def event(name: str, data: Any, id: str = "") -> bytes:
    return f"event: {name}\nid: {id}\ndata: {json.dumps(data)}\n\n".encode()


STARTED = event("started", {"process_id": PROCESS, "status": "running"}, "0.0")
EXIT = event("exit", ENDED, "3.0")


def output(text: str, offset: int, stream: str = "stdout") -> bytes:
    return event("output", {"stream": stream, "offset": offset, "data": text}, f"{offset + len(text)}.0")


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Some bytes, and then the connection breaks or ends."""

    def __init__(self, *chunks: bytes, breaks: bool = False) -> None:
        self._chunks = chunks
        self._breaks = breaks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._breaks:
            raise httpx.ReadError("broken on purpose")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def stream(*chunks: bytes, breaks: bool = False) -> Step:
    return lambda request: httpx.Response(200, stream=Body(*chunks, breaks=breaks))


def run(server: Script) -> list[Any]:
    return list(server.client().stream_command("alice_1f2e3d4c", "echo hi"))


def test_a_command_is_started_speaks_and_ends() -> None:
    started, spoken, ended = run(script(stream(STARTED + output("hi\n", 0), EXIT)))
    assert isinstance(started, Started)
    assert started.process_id == PROCESS
    assert isinstance(spoken, Output)
    assert (spoken.stream, spoken.raw, spoken["data"]) == ("stdout", b"hi\n", "hi\n")
    assert isinstance(ended, Ended)
    assert ended["exit_code"] == 0


def test_output_that_is_not_text_comes_as_its_bytes() -> None:
    data = event("output", {"stream": "stderr", "offset": 0, "data": "\ufffd", "data_base64": "/w=="})
    _, spoken, _ = run(script(stream(STARTED, data, EXIT)))
    assert spoken.raw == b"\xff"


async def test_a_broken_stream_goes_on_where_it_stopped() -> None:
    server = script(stream(STARTED, output("h", 0), breaks=True), stream(output("i\n", 1), EXIT))
    async with server.async_client() as client:
        events = [event async for event in client.stream_command("alice_1f2e3d4c", "echo hi")]
    assert b"".join(event.raw for event in events if isinstance(event, Output)) == b"hi\n"
    again = server.requests[1]
    assert again.method == "GET"
    assert again.url.path == f"/sandboxes/alice_1f2e3d4c/processes/{PROCESS}/stream"
    assert again.headers["last-event-id"] == "1.0"


def test_a_stream_that_the_server_ended_early_is_taken_up_again() -> None:
    server = script(stream(STARTED, output("hi\n", 0)), stream(EXIT))
    assert [event.type for event in run(server)] == ["started", "output", "exit"]


def test_a_stream_that_never_gets_further_is_given_up() -> None:
    server = script(stream(STARTED, breaks=True), stream(breaks=True))
    with pytest.raises(AnswerLost):
        run(server)
    assert len(server.requests) == len(server.pauses) + 1 == 5


def test_a_command_whose_start_is_not_known_is_not_taken_up_again() -> None:
    with pytest.raises(AnswerLost):
        run(script(stream(breaks=True)))


def test_what_goes_wrong_in_a_stream_is_raised() -> None:
    error = {"success": False, "error": {"code": "sandbox_gone", "message": "gone", "status": 409, "request_id": "r"}}
    with pytest.raises(SandboxGone, match="gone") as caught:
        run(script(stream(STARTED, event("error", error))))
    assert caught.value.request_id == "r"


def test_what_goes_wrong_before_a_stream_is_raised_too() -> None:
    with pytest.raises(SandboxGone):
        run(script(failure("sandbox_gone", 409)))


def test_a_download_that_breaks_is_an_error_and_not_a_short_file() -> None:
    server = script(stream(b"half", breaks=True))
    chunks = server.client().download("alice_1f2e3d4c", "/workspace/a")
    assert next(chunks) == b"half"
    with pytest.raises(AnswerLost):
        next(chunks)


def test_events_are_followed_through_a_break_to_the_end_of_the_sandbox() -> None:
    def happened(seq: int, kind: str) -> bytes:
        return event(kind, {"seq": seq, "type": kind, "at": "2030-01-31T12:00:00.000Z", "data": {}}, str(seq))

    server = script(
        stream(b": keep-alive\n\n", happened(4, "sandbox.paused"), breaks=True),
        stream(happened(5, "sandbox.deleted")),
    )
    seen = list(server.client().stream_events("alice_1f2e3d4c", after=3))
    assert [item.seq for item in seen] == [4, 5]
    assert server.header("last-event-id") == ["3", "4"]


async def test_a_broken_watch_is_an_error_because_changes_would_be_missing() -> None:
    change = event("change", {"path": "/workspace/a", "change": "created"})
    async with script(stream(change, breaks=True)).async_client() as client:
        changes = client.watch_files("alice_1f2e3d4c")
        assert (await anext(changes)).change == "created"
        with pytest.raises(AnswerLost):
            await anext(changes)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_decoded_whatever_the_newlines_and_the_cuts(newline: str, size: int) -> None:
    text = newline.join(["\ufeff"[1:], ": hello", "event: a", "id: 1", "data: é", "data:two", "", "data: x", "", ""])
    data = text.encode()
    decoder = EventDecoder()
    found = [item for at in range(0, len(data), size) for item in decoder.feed(data[at : at + size])]
    found += decoder.feed(newline.encode())
    assert [(item.event, item.data, item.id) for item in found] == [("a", "é\ntwo", "1"), ("message", "x", "1")]
