"""Followers with a window: they are sent no more than they take, and the process waits for them."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Process, one, piece, raw
from tests.agent.conftest import Running
from tests.support.processor import cpu_seconds
from tests.support.waiting import PATIENCE_S, wait_until

SPOOL = 1 << 16
WINDOW = 1 << 14
LONG = 60_000
"""Milliseconds for which a follower may hold a process up that a test never waits for."""


def follow(client: Client, process_id: str, window: int = WINDOW, hold_ms: int = LONG, all: bool = False) -> int:
    wanted = struct.pack("<QQBII", 0, 0, all, window, hold_ms)
    return client.send(wire.FOLLOW_WINDOW, raw(process_id) + wanted)


def take(client: Client, request: int, size: int) -> None:
    client.send(wire.WINDOW, struct.pack("<II", request, size))


def gated(client: Client, script: str, spool: int = SPOOL) -> None:
    """A process ``p`` that does this once it is let go: whoever is to see all of it follows it first."""
    client.shell("p", f"read go; {script}", spool=spool, flags=wire.WITH_STDIN)


def let_go(client: Client) -> None:
    client.ask(wire.STDIN, raw("p") + raw("\n"))


def taken(client: Client, request: int) -> tuple[list[tuple[int, int, bytes]], Process]:
    """Everything to the end, each piece acknowledged as it comes."""
    pieces = []
    while (frame := client.answer(request)).type == wire.DATA:
        pieces.append(piece(frame))
        take(client, request, len(pieces[-1][2]))
    return pieces, one(Process, frame)


def held(client: Client, process_id: str) -> int:
    """Waits until nothing more is read from a process that has more to say: its size then."""
    size, still = -1, 0

    def stands_still() -> bool:
        nonlocal size, still
        found = client.process(process_id)
        still = still + 1 if found.stdout_size == size and size > 0 else 0
        size = found.stdout_size
        return still == 20

    wait_until(stands_still)
    return size


def gaps(pieces: list[tuple[int, int, bytes]]) -> int:
    at = lost = 0
    for _, offset, data in pieces:
        lost += offset - at
        at = offset + len(data)
    return lost


def test_no_more_is_sent_than_the_window_until_some_was_taken(client: Client) -> None:
    client.shell("p", "seq -f %07.0f 1 100000; exec sleep 100", spool=4 << 20)
    request, got = follow(client, "p"), 0
    while got < WINDOW:
        got += len(piece(client.answer(request))[2])
    assert got == WINDOW
    client.ask(wire.PING)
    take(client, request, 1000)
    assert piece(client.answer(request))[1:] == (WINDOW, client.output("p", offset=WINDOW, limit=1000)[1])


def test_a_follower_that_takes_everything_loses_nothing_of_what_is_far_more_than_the_spool(client: Client) -> None:
    gated(client, "seq -f %015.0f 1 2000000; seq -f %015.0f 1 20000 >&2")
    request = follow(client, "p")
    let_go(client)
    sums = {wire.STDOUT: hashlib.sha256(), wire.STDERR: hashlib.sha256()}
    while (frame := client.answer(request)).type == wire.DATA:
        stream, _, data = piece(frame)
        sums[stream].update(data)
        take(client, request, len(data))
    assert one(Process, frame).stdout_size == 32_000_000
    for stream, count in ((wire.STDOUT, 2_000_000), (wire.STDERR, 20_000)):
        expected = hashlib.sha256(b"".join(b"%015d\n" % n for n in range(1, count + 1)))
        assert sums[stream].digest() == expected.digest()


def test_the_slowest_of_several_followers_sets_the_pace(client: Client, agent: Running) -> None:
    gated(client, "seq -f %015.0f 1 100000")
    slow, fast = agent.connect(), agent.connect()
    slow_request, fast_request = follow(slow, "p"), follow(fast, "p")
    for one_of_them in (slow, fast):
        one_of_them.ask(wire.PING)
    let_go(client)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(taken, fast, fast_request)
        assert held(client, "p") <= 2 * SPOOL
        pieces, ended = taken(slow, slow_request)
        assert (gaps(pieces), ended.stdout_size) == (0, 1_600_000)
        assert gaps(other.result(PATIENCE_S)[0]) == 0


def test_a_held_process_can_be_read_and_waited_for_and_killed_by_others(client: Client, agent: Running) -> None:
    client.shell("p", "exec yes", spool=SPOOL)
    other = agent.connect()
    follow(other, "p")
    size = held(client, "p")
    assert len(client.output("p", offset=size - 100)[1]) == 100
    assert client.run("q", "echo fine")[1] == b"fine\n"
    client.ask(wire.SIGNAL, raw("p") + struct.pack("<i", signal.SIGKILL))
    assert client.wait("p").status == wire.KILLED


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_follower_that_leaves_lets_the_process_go_on(client: Client, agent: Running, how: str) -> None:
    gated(client, "seq -f %015.0f 1 100000")
    other = agent.connect()
    request = follow(other, "p")
    other.ask(wire.PING)
    let_go(client)
    held(client, "p")
    if how == "closed":
        other.close()
    else:
        other.send(wire.CANCEL, struct.pack("<I", request))
    assert client.wait("p").stdout_size == 1_600_000


def test_a_follower_that_takes_nothing_for_its_time_loses_its_hold_and_is_shown_the_gap(client: Client) -> None:
    gated(client, "seq -f %015.0f 1 100000; read x")
    request = follow(client, "p", hold_ms=300)
    let_go(client)
    first = piece(client.answer(request))
    wait_until(lambda: client.process("p").stdout_size >= 1_600_000)
    take(client, request, len(first[2]))
    let_go(client)
    pieces, ended = taken(client, request)
    assert gaps([first, *pieces]) > 1_600_000 - 3 * SPOOL
    assert pieces[-1][1] + len(pieces[-1][2]) == ended.stdout_size == 1_600_000


def test_one_who_takes_again_holds_again(client: Client) -> None:
    gated(client, "seq -f %015.0f 1 50000; read x; seq -f %015.0f 1 50000")
    request = follow(client, "p", hold_ms=500)
    let_go(client)
    first = piece(client.answer(request))
    wait_until(lambda: client.process("p").stdout_size >= 800_000)
    take(client, request, len(first[2]))
    at = 0
    while at < 800_000:
        _, offset, data = piece(client.answer(request))
        at = offset + len(data)
        take(client, request, len(data))
    let_go(client)
    pieces, _ = taken(client, request)
    assert sum(len(data) for _, _, data in pieces) == 800_000


def test_what_is_in_the_pipe_at_the_end_is_kept_for_a_follower_that_is_behind(client: Client, agent: Running) -> None:
    """A process that ends while it is held: the last it wrote fits in its pipe, and in no spool."""
    size = SPOOL + (60 << 10)
    gated(client, f"head -c {size} /dev/zero | tr '\\0' x")
    request = follow(client, "p")
    let_go(client)
    assert client.wait("p").stdout_size == size
    before = cpu_seconds(agent.pid)
    time.sleep(1)
    assert cpu_seconds(agent.pid) - before < 0.5
    pieces, ended = taken(client, request)
    assert (gaps(pieces), sum(len(data) for _, _, data in pieces), ended.exit_code) == (0, size, 0)


def test_one_who_follows_all_hears_a_child_that_was_held(client: Client, agent: Running) -> None:
    """The pipe is closed at the far end while it is not read: nobody spins, and the end comes when all was taken."""
    gated(client, "(seq -f %015.0f 1 12000 &) ; exit 3")
    request = follow(client, "p", all=True)
    let_go(client)
    assert client.wait("p").exit_code == 3
    before = cpu_seconds(agent.pid)
    time.sleep(1)
    assert cpu_seconds(agent.pid) - before < 0.5
    pieces, ended = taken(client, request)
    assert (gaps(pieces), ended.stdout_size, ended.exit_code) == (0, 192_000, 3)


def test_a_window_may_come_with_the_start(client: Client) -> None:
    script = ["/bin/sh", "-c", "seq -f %015.0f 1 100000"]
    payload = client.spawn_payload("p", script, spool=SPOOL, flags=wire.WITH_FOLLOW | wire.WITH_WINDOW)
    request = client.send(wire.SPAWN, payload + struct.pack("<II", WINDOW, LONG))
    assert client.answer(request).type == wire.PROCESS
    assert held(client, "p") <= 2 * SPOOL
    pieces, ended = taken(client, request)
    assert (gaps(pieces), ended.stdout_size) == (0, 1_600_000)


def test_a_terminal_that_is_held_still_takes_input(client: Client) -> None:
    script = ["/bin/sh", "-c", "stty -echo; read x; seq -f %015.0f 1 20000; read y; echo $x $y"]
    client.spawn("p", script, spool=SPOOL, flags=wire.WITH_TERMINAL)
    request = follow(client, "p")
    client.ask(wire.STDIN, raw("p") + raw("one\n"))
    held(client, "p")
    client.ask(wire.STDIN, raw("p") + raw("two\n"))
    pieces, _ = taken(client, request)
    assert gaps(pieces) == 0
    assert b"".join(data for _, _, data in pieces).endswith(b"000000000020000\r\none two\r\n")


def test_time_in_which_the_sandbox_is_frozen_costs_no_hold(client: Client, agent: Running) -> None:
    gated(client, "seq -f %015.0f 1 100000")
    request = follow(client, "p", hold_ms=3000)
    let_go(client)
    held(client, "p")
    os.kill(agent.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(agent.pid, signal.SIGCONT)
    pieces, ended = taken(client, request)
    assert (gaps(pieces), ended.stdout_size) == (0, 1_600_000)


def test_words_about_windows_that_are_not_there_are_ignored(client: Client) -> None:
    client.shell("p", "exec sleep 100")
    plain = client.follow("p")
    for request in (plain, 4711):
        take(client, request, 1 << 20)
    assert client.ask(wire.PING).type == wire.OK
