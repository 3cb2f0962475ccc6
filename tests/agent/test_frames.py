"""Frames: a good one is answered once, a bad one ends its connection and nothing else."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import HEADER, Client, Refused, raw, words
from tests.agent.conftest import Running


def header(length: int, kind: int, fds: int = 0, reserved: int = 0, request: int = 7) -> bytes:
    return HEADER.pack(length, kind, fds, reserved, request)


def test_a_ping_is_answered(client: Client) -> None:
    assert client.ask(wire.PING).type == wire.OK


def test_the_first_frame_must_be_hello(agent: Running) -> None:
    client = agent.connect(greet=False)
    client.send(wire.PING)
    assert client.is_broken()


def test_hello_comes_once(client: Client) -> None:
    client.send(wire.HELLO, struct.pack("<II", 1, 1))
    assert client.is_broken()


def test_a_version_of_nothing_is_refused(agent: Running) -> None:
    client = agent.connect(greet=False)
    client.send(wire.HELLO, struct.pack("<II", 0, 0))
    assert client.is_broken()


@pytest.mark.parametrize(
    "data",
    [
        header(1114113, wire.PING),
        header(0xFFFFFFFF, wire.STDIN),
        header(0, wire.PING, fds=1),
        header(0, wire.PING, reserved=1),
        header(0, wire.PING, request=0),
        header(1, wire.PING) + b"x",
        header(3, wire.PROCESS_GET) + b"\0\0\0",
        header(4, wire.PROCESS_GET) + struct.pack("<I", 5),
        header(4, wire.PROCESS_GET) + struct.pack("<I", 0xFFFFFFFF),
        header(9, wire.PROCESS_GET) + raw("abcd") + b"x",
        header(8, wire.SPAWN) + raw("") + struct.pack("<I", 0xFFFFFFFF),
        header(1, wire.DIAL) + b"x",
        header(12, wire.STAT) + raw("") + raw("abcd"),
    ],
    ids=[
        "too long", "huge", "descriptors", "reserved", "no id", "left over", "too short", "text too short", "text huge",
        "text left over", "list huge", "half a number", "flag missing",
    ],
)  # fmt: skip
def test_a_malformed_frame_ends_only_its_connection(agent: Running, data: bytes) -> None:
    good, bad = agent.connect(), agent.connect()
    bad.socket.sendall(data)
    assert bad.is_broken()
    assert good.ask(wire.PING).type == wire.OK


def test_the_same_id_twice_at_once_is_refused(client: Client) -> None:
    client.shell("p", "exec sleep 1000")
    client.send(wire.WAIT, raw("p"), request_id=99)
    client.send(wire.PING, request_id=99)
    assert client.is_broken()


def test_an_id_may_be_used_again_when_it_is_answered(client: Client) -> None:
    for _ in range(3):
        client.send(wire.PING, request_id=5)
        assert client.answer(5).type == wire.OK


def test_an_unknown_request_is_an_error_and_no_more(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.ask(0x7E, b"whatever")
    assert refused.value.errno == errno.ENOSYS
    assert client.ask(wire.PING).type == wire.OK


def test_a_text_with_a_nul_is_invalid(client: Client) -> None:
    for kind, payload in (
        (wire.STAT, raw("user") + raw(b"/tmp\0/x") + b"\0"),
        (wire.PROCESS_GET, raw(b"a\0b")),
        (wire.SPAWN, client.spawn_payload("p", [b"echo", b"a\0b"])),
    ):
        with pytest.raises(Refused) as refused:
            client.ask(kind, payload)
        assert refused.value.errno == errno.EINVAL


def test_frames_in_the_smallest_pieces_are_frames(agent: Running) -> None:
    client = agent.connect()
    for byte in header(0, wire.PING, request=1000) + header(0, wire.PING, request=1001):
        client.socket.sendall(bytes([byte]))
    assert client.answer(1000).type == client.answer(1001).type == wire.OK


def test_many_requests_at_once_are_all_answered(client: Client) -> None:
    client.socket.sendall(b"".join(header(0, wire.PING, request=n) for n in range(1, 5001)))
    assert all(client.answer(n).type == wire.OK for n in range(1, 5001))


def test_the_largest_frame_is_taken(client: Client) -> None:
    client.shell("p", "wc -c", flags=wire.WITH_STDIN)
    data = b"x" * (1114112 - 9)
    assert client.ask(wire.STDIN, raw("p") + raw(data)).type == wire.OK
    client.ask(wire.CLOSE_STDIN, raw("p"))
    client.wait("p")
    assert int(client.everything("p")) == len(data)


def test_descriptors_sent_to_the_agent_are_not_kept(agent: Running) -> None:
    client = agent.connect()
    before = agent.descriptors()
    with Path("/dev/null").open() as file:
        for n in range(50):
            frame = header(0, wire.PING, request=100 + n)
            socket.send_fds(client.socket, [frame], [file.fileno()] * 3)
            assert client.answer(100 + n).type == wire.OK
    assert agent.descriptors() == before


def test_at_most_thirty_two_connections(agent: Running) -> None:
    clients = [agent.connect() for _ in range(32)]
    one_more = agent.connect(greet=False)
    assert one_more.is_broken()
    clients[0].close()
    for _ in range(100):
        again = agent.connect(greet=False)
        again.send(wire.HELLO, struct.pack("<II", 1, 1))
        try:
            assert again.next(1).type == wire.HELLO_OK
            return
        except (wire.Broken, BrokenPipeError):
            clients[1].ask(wire.PING)  # by its answer the agent has seen the one that left
    raise AssertionError("no place became free")


def test_cancel_answers_the_open_request_and_is_quiet_otherwise(client: Client) -> None:
    client.shell("p", "exec sleep 1000")
    waiting = client.send(wire.WAIT, raw("p"))
    client.send(wire.CANCEL, struct.pack("<I", 4711))
    client.send(wire.CANCEL, struct.pack("<I", waiting))
    with pytest.raises(Refused) as refused:
        client.answer(waiting)
    assert refused.value.errno == errno.ECANCELED
    assert client.ask(wire.PING).type == wire.OK


def test_too_many_open_requests_are_refused(client: Client) -> None:
    client.shell("p", "exec sleep 1000")
    requests = [client.send(wire.WAIT, raw("p")) for _ in range(1025)]
    with pytest.raises(Refused) as refused:
        client.answer(requests[-1])
    assert refused.value.errno == errno.EAGAIN
    assert client.ask(wire.PING).type == wire.OK


def test_random_bytes_end_one_connection_after_the_other(agent: Running) -> None:
    chance = random.Random(4711)
    for _ in range(100):
        client = agent.connect()
        # The types are such that nothing happens on disk, whatever the payload says by accident.
        kinds = [wire.PING, wire.PROCESS_GET, wire.FOLLOW, wire.READ_OUTPUT, wire.STDIN, wire.WAIT, wire.CANCEL, 0x7F]
        length = chance.choice([0, 1, 8, 40, 1 << 20, 0xFFFFFFFF])
        data = header(length, chance.choice(kinds), chance.choice([0, 0, 0, 1]), 0, chance.choice([0, 1, 2]))
        client.socket.sendall(data + chance.randbytes(min(length, 100)))
        client.close()
    assert agent.connect().ask(wire.PING).type == wire.OK


def test_a_client_that_goes_in_the_middle_of_a_frame_leaves_nothing(agent: Running) -> None:
    before = agent.connect()
    before.ask(wire.PING)
    held = agent.descriptors()
    for n in range(20):
        client = agent.connect()
        client.socket.sendall(header(1 << 20, wire.STDIN) + os.urandom(n * 1000))
        client.close()
    _until(lambda: before.ask(wire.PING) and agent.descriptors() == held)


def _until(true: object) -> None:
    """The agent sees a connection end in its own time: every look is a round trip."""
    assert callable(true)
    for _ in range(2000):
        if true():
            return
    raise AssertionError("it did not happen")


def test_words_are_as_long_as_they_say(client: Client) -> None:
    """A count of items that could not fit is refused before anything is made of it."""
    payload = raw("p") + struct.pack("<I", 3) + raw("a") + raw("b")
    client.send(wire.SPAWN, payload)
    assert client.is_broken()
    assert words(["a"]) == b"\1\0\0\0\1\0\0\0a"
