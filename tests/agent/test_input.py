"""Input: in order, whole, told when it is taken; and a process that does not read holds up nobody else."""

from __future__ import annotations

import errno
import random

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Refused, raw
from tests.agent.conftest import Running


def test_input_is_empty_unless_asked_for(client: Client) -> None:
    ended, out, _ = client.run("p", "cat; echo done")
    assert (ended.exit_code, out) == (0, b"done\n")


def test_input_arrives_and_ends_when_closed(client: Client) -> None:
    client.shell("p", "cat; echo done", flags=wire.WITH_STDIN)
    client.ask(wire.STDIN, raw("p") + raw("one\n"))
    client.until("p", b"one\n")
    client.ask(wire.STDIN, raw("p") + raw(b"two\xff\n"))
    for _ in range(2):
        assert client.ask(wire.CLOSE_STDIN, raw("p")).type == wire.OK
    with pytest.raises(Refused) as refused:
        client.ask(wire.STDIN, raw("p") + raw("x"))
    assert refused.value.errno == errno.EPIPE
    client.wait("p")
    assert client.everything("p") == b"one\ntwo\xff\ndone\n"


def test_megabytes_closed_at_once_arrive_whole_and_in_order(client: Client) -> None:
    data = random.Random(3).randbytes(3 << 20)
    client.shell("p", "sleep 0.05; sha256sum", flags=wire.WITH_STDIN)
    pieces = [data[at : at + (1 << 18)] for at in range(0, len(data), 1 << 18)]
    requests = [client.send(wire.STDIN, raw("p") + raw(part)) for part in pieces]
    client.ask(wire.CLOSE_STDIN, raw("p"))
    for request in requests:
        assert client.answer(request).type == wire.OK
    client.wait("p")
    import hashlib

    assert client.everything("p").split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_process_that_does_not_read_holds_up_only_its_writer(client: Client, agent: Running) -> None:
    client.shell("p", "read x; cat > /dev/null", flags=wire.WITH_STDIN)
    stuck = [client.send(wire.STDIN, raw("p") + raw(b"y" * (1 << 20))) for _ in range(4)]
    too_much = client.send(wire.STDIN, raw("p") + raw(b"y" * (1 << 20)))
    with pytest.raises(Refused) as refused:
        client.answer(too_much)
    assert refused.value.errno == errno.EAGAIN
    assert agent.connect().run("q", "echo fine")[1] == b"fine\n"
    client.send(wire.CANCEL, stuck[3].to_bytes(4, "little"))
    with pytest.raises(Refused) as refused:
        client.answer(stuck[3])
    assert refused.value.errno == errno.ECANCELED
    client.ask(wire.SIGNAL, raw("p") + (9).to_bytes(4, "little"))
    for request in stuck[:3]:
        with pytest.raises(Refused) as refused:
            client.answer(request)
        assert refused.value.errno == errno.EPIPE


def test_a_process_that_closes_its_input_is_told(client: Client) -> None:
    client.shell("p", "exec 0<&-; echo closed; exec sleep 1000", flags=wire.WITH_STDIN)
    client.until("p", b"closed")
    with pytest.raises(Refused) as refused:
        for _ in range(3):
            client.ask(wire.STDIN, raw("p") + raw("x"))
    assert refused.value.errno == errno.EPIPE


def test_input_may_come_from_another_connection(client: Client, agent: Running) -> None:
    client.shell("p", "cat", flags=wire.WITH_STDIN)
    client.ask(wire.STDIN, raw("p") + raw("old "))
    client.close()
    other = agent.connect()
    other.ask(wire.STDIN, raw("p") + raw("new"))
    other.ask(wire.CLOSE_STDIN, raw("p"))
    other.wait("p")
    assert other.everything("p") == b"old new"
