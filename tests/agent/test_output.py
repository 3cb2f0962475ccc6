"""Output: every byte, from any offset, bounded on disk, by anyone, and never in anybody's way."""

from __future__ import annotations

import os
import resource
import struct
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Refused, raw
from tests.agent.conftest import Running, Starter
from tests.support.waiting import wait_until


def joined(pieces: list[tuple[int, int, bytes]], stream: int = wire.STDOUT) -> bytes:
    return b"".join(data for number, _, data in pieces if number == stream)


def test_five_megabytes_are_complete_byte_for_byte(client: Client) -> None:
    expected = b"".join(b"%07d\n" % n for n in range(1, 655361))
    client.shell("p", "seq -f %07.0f 1 655360; seq -f %07.0f 1 1000 >&2", spool=32 << 20)
    pieces, ended = client.followed(client.follow("p"))
    assert joined(pieces) == expected
    assert joined(pieces, wire.STDERR) == expected[:8000]
    assert client.everything("p") == expected
    assert (ended.stdout_size, ended.stderr_size) == (len(expected), 8000)


def test_any_byte_comes_through(client: Client) -> None:
    _, out, _ = client.run("p", r"printf '\000\377\376\r\n\033[0m\200'")
    assert out == b"\x00\xff\xfe\r\n\x1b[0m\x80"


def test_reading_by_offset_and_limit(client: Client) -> None:
    client.run("p", "printf 0123456789")
    assert client.output("p", offset=3, limit=4) == (3, b"3456")
    assert client.output("p", offset=3, limit=0) == (3, b"")
    assert client.output("p", offset=10) == (10, b"")
    assert client.output("p", offset=99) == (99, b"")
    assert client.output("p", offset=2**64 - 1) == (2**64 - 1, b"")
    assert client.output("p", wire.STDERR) == (0, b"")


def test_following_from_offsets_gives_the_rest(client: Client) -> None:
    client.run("p", "printf 0123456789; printf abcdef >&2")
    pieces, _ = client.followed(client.follow("p", 4, 6))
    assert pieces == [(wire.STDOUT, 4, b"456789")]
    pieces, _ = client.followed(client.follow("p", 99, 99))
    assert pieces == []


def test_output_comes_as_it_is_written(client: Client) -> None:
    client.shell("p", "echo first; read x; echo second", flags=wire.WITH_STDIN)
    request = client.follow("p")
    assert wire.piece(client.answer(request)) == (wire.STDOUT, 0, b"first\n")
    client.ask(wire.STDIN, raw("p") + raw("\n"))
    assert client.followed(request)[0] == [(wire.STDOUT, 6, b"second\n")]


def test_the_last_words_are_never_missed(client: Client) -> None:
    for n in range(100):
        payload = client.spawn_payload(f"p{n}", ["/bin/sh", "-c", f"echo start; echo end {n}"], flags=wire.WITH_FOLLOW)
        request = client.send(wire.SPAWN, payload)
        client.answer(request)
        assert joined(client.followed(request)[0]) == b"start\nend %d\n" % n


def test_several_followers_each_get_everything(client: Client, agent: Running) -> None:
    client.shell("p", "for i in 1 2 3 4 5; do echo $i; sleep 0.01; done")
    others = [agent.connect() for _ in range(3)]
    requests = [(one, one.follow("p")) for one in (client, client, *others)]
    assert {joined(one.followed(request)[0]) for one, request in requests} == {b"1\n2\n3\n4\n5\n"}


def test_a_hundred_megabytes_leave_a_bounded_spool(client: Client, agent: Running) -> None:
    limit = 1 << 20
    client.shell("p", "seq -f %015.0f 1 6553600", spool=limit)
    ended = client.wait("p")
    size = 6553600 * 16
    assert (ended.exit_code, ended.stdout_size) == (0, size)
    begin, data = client.output("p", limit=4096)
    assert limit // 2 <= size - begin <= limit
    first = -begin % 16
    assert data[first : first + 16] == b"%015d\n" % ((begin + first) // 16 + 1)
    assert client.output("p", offset=size - 16) == (size - 16, b"%015d\n" % 6553600)
    pieces, _ = client.followed(client.follow("p"))
    assert pieces[0][1] == begin
    assert sum(len(data) for _, _, data in pieces) == size - begin
    on_disk = sum(path.stat().st_size for path in agent.state.iterdir())
    assert on_disk <= limit + 4096


def test_a_follower_that_does_not_read_slows_nobody_and_misses_what_the_spool_dropped(
    client: Client, agent: Running
) -> None:
    slow = agent.connect()
    client.shell("p", "seq -f %07.0f 1 2000000; read x", flags=wire.WITH_STDIN, spool=1 << 20)
    request = slow.follow("p")
    wait_until(lambda: client.process("p").stdout_size >= 16_000_000)
    client.ask(wire.STDIN, raw("p") + raw("\n"))
    client.wait("p")
    pieces, ended = slow.followed(request)
    assert ended.stdout_size == 16_000_000
    at, gaps = 0, 0
    for _, offset, data in pieces:
        assert offset >= at
        gaps += offset > at
        at = offset + len(data)
        first = -offset % 8
        if len(data) >= first + 8:
            assert data[first : first + 8] == b"%07d\n" % ((offset + first) // 8 + 1)
    assert at == 16_000_000
    assert gaps >= 1


def test_a_client_that_does_not_take_its_answers_stops_only_itself(client: Client, agent: Running) -> None:
    client.run("p", "seq -f %07.0f 1 131072", spool=4 << 20)
    stuck = agent.connect()
    request = wire.HEADER.pack(len(raw("p")) + 13, wire.READ_OUTPUT, 0, 0, 1)
    stuck.socket.settimeout(0.3)
    frames = b"".join(
        request[:8] + struct.pack("<I", n) + raw("p") + struct.pack("<BQI", 1, 0, 1 << 20) for n in range(1, 20001)
    )
    with pytest.raises(TimeoutError):
        stuck.socket.sendall(frames)
    assert client.ask(wire.PING).type == wire.OK
    resident = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1]) * 4096
    assert resident < 64 << 20 or "sanitized" in agent.binary.name
    stuck.close()
    assert client.ask(wire.PING).type == wire.OK


def test_background_children_are_read_after_the_end(client: Client, tmp_path: Path) -> None:
    ended, out, _ = client.run("p", f"(while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo late) & echo early")
    assert (ended.status, out) == (wire.COMPLETED, b"early\n")
    (tmp_path / "go").touch()
    wait_until(lambda: client.everything("p") == b"early\nlate\n")


def test_an_endless_background_writer_does_not_keep_the_end_from_being_told(client: Client) -> None:
    ended, _, _ = client.run("p", "yes & echo $! >&2", spool=1 << 16)
    assert ended.status == wire.COMPLETED
    os.kill(int(client.everything("p", wire.STDERR)), 9)


def test_a_full_disk_loses_output_and_nothing_else(start: Starter) -> None:
    """Files may grow to 64 KiB only, which the agent sees as any other refusal of the disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        client = start().connect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    client.shell("p", "seq -f %07.0f 1 100000; echo end >&2", spool=64 << 20)
    pieces, ended = client.followed(client.follow("p"))
    assert (ended.exit_code, ended.stdout_size, ended.stderr_size) == (0, 800000, 4)
    for _, offset, data in pieces[:1]:
        assert (offset, data[:8]) == (0, b"0000001\n")
    begin, data = client.output("p", offset=0)
    assert data[-begin % 8 :][:8] == b"%07d\n" % ((begin + 7) // 8 + 1)
    assert client.run("q", "echo fine")[1] == b"fine\n"


def test_only_so_many_ended_processes_are_remembered(client: Client, agent: Running) -> None:
    for n in range(300):
        client.send(wire.SPAWN, client.spawn_payload(f"p{n}", ["/bin/echo", str(n)]), request_id=1000 + n)
    for n in range(300):
        client.answer(1000 + n)
    client.run("last", "true")
    wait_until(lambda: all(process.status != wire.RUNNING for process in client.processes()))
    client.ask(wire.PING)
    listed = client.processes()
    assert len(listed) == 256
    assert "last" in [process.process_id for process in listed]
    with pytest.raises(Refused):
        client.process("p0")
    assert len(list(agent.state.glob("*.r"))) == 256


def test_only_so_much_output_of_ended_processes_is_kept(client: Client, agent: Running) -> None:
    for n in range(6):
        client.run(f"p{n}", "head -c 16777216 /dev/zero; echo $(date) >&2", spool=64 << 20)
    client.ask(wire.PING)
    assert [process.process_id for process in client.processes()] == ["p3", "p4", "p5"]
    assert sum(path.stat().st_size for path in agent.state.iterdir()) <= 64 << 20
