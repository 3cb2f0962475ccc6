"""What was added to the first version of the protocol: notes, followers to the last byte, owners, attributes, acts."""

from __future__ import annotations

import errno
import os
import signal
import struct
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Entry, Payload, Process, Refused, one, piece, raw, words
from tests.agent.conftest import Running

ALL = wire.WITH_FOLLOW | wire.WITH_FOLLOW_ALL
HOLDING = "echo first; (sleep 0.4; echo last) & exit 3"
PREFIX = "user.e2b."


@pytest.fixture
def detailed(agent: Running) -> Client:
    """Of one who knows the additions."""
    return agent.connect(features=3)


def begin(client: Client, process_id: str, script: str, flags: int = ALL, note: bytes = b"") -> int:
    payload = client.spawn_payload(process_id, ["/bin/sh", "-c", script], flags=flags | (wire.WITH_NOTE if note else 0))
    return client.send(wire.SPAWN, payload + (raw(note) if note else b""))


def note(client: Client, process_id: str) -> bytes:
    p = Payload(client.ask(wire.NOTE, raw(process_id)).payload)
    found = p.blob()
    p.done()
    return found


def signal_one(client: Client, process_id: str, number: int) -> None:
    assert client.ask(wire.SIGNAL_ONE, raw(process_id) + struct.pack("<i", number)).type == wire.OK


def open_for(
    client: Client, path: Path, how: int = wire.IN_PLACE, owner: str = "", attributes: dict[str, str] | None = None
) -> tuple[int, int]:
    pairs = [part for name, value in (attributes or {}).items() for part in (PREFIX + name, value)]
    prefix = "" if attributes is None else PREFIX
    payload = raw("root") + raw(owner) + raw(str(path)) + struct.pack("<BI", how, wire.UNCHANGED)
    frame = client.ask(wire.OPEN_FOR, payload + raw(prefix) + words(pairs))
    assert frame.fd is not None
    return Payload(frame.payload).number("I"), frame.fd


def write_for(client: Client, path: Path, data: bytes, **options: object) -> Entry:
    token, fd = open_for(client, path, **options)  # type: ignore[arg-type]
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return one(Entry, client.ask(wire.COMMIT, struct.pack("<I", token)))


def attributes(client: Client, *paths: Path) -> list[dict[str, str]]:
    p = Payload(client.ask(wire.ATTRIBUTES, raw("root") + raw(PREFIX) + words([str(path) for path in paths])).payload)
    found = []
    for _ in range(p.number("I")):
        found.append({p.blob().decode(): p.blob().decode() for _ in range(p.number("I"))})
    p.done()
    return found


# Following to the last byte


def test_a_spawn_that_follows_all_ends_with_the_last_writer(detailed: Client) -> None:
    request = begin(detailed, "p", HOLDING)
    assert detailed.answer(request).type == wire.PROCESS
    pieces, ended = detailed.followed(request)
    assert b"".join(data for _, _, data in pieces) == b"first\nlast\n"
    assert ended.exit_code == 3


def test_the_other_followers_are_told_at_the_end_of_the_process(detailed: Client) -> None:
    detailed.shell("p", "sleep 0.5 & exit 0")
    detailed.wait("p")
    assert detailed.followed(detailed.follow("p"))[1].exit_code == 0
    late = detailed.send(wire.FOLLOW_ALL, raw("p") + struct.pack("<QQ", 0, 0))
    assert detailed.followed(late)[1].exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_from_outside_lets_them_go(detailed: Client, number: int) -> None:
    request = begin(detailed, "p", "sleep 1000 & echo ready; exec sleep 1000")
    assert detailed.answer(request).type == wire.PROCESS
    assert piece(detailed.answer(request))[2] == b"ready\n"
    signal_one(detailed, "p", number)
    assert one(Process, detailed.answer(request)).exit_code == 128 + number


def test_a_signal_that_comes_after_the_end_lets_them_go_too(detailed: Client) -> None:
    request = begin(detailed, "p", "sleep 1000 & exit 0")
    assert detailed.answer(request).type == wire.PROCESS
    detailed.wait("p")
    signal_one(detailed, "p", signal.SIGKILL)
    assert one(Process, detailed.answer(request)).exit_code == 0
    with pytest.raises(Refused) as refused:
        signal_one(detailed, "p", signal.SIGINT)
    assert refused.value.errno == errno.EPIPE


def test_a_follower_that_is_cancelled_or_cut_off_leaves_nothing(agent: Running, detailed: Client) -> None:
    before = agent.descriptors()
    for n in range(10):
        client = agent.connect(features=3)
        request = begin(client, f"p{n}", "sleep 0.2 & exit 0")
        client.answer(request)
        if n % 2:
            client.send(wire.CANCEL, struct.pack("<I", request))
        else:
            client.close()
        detailed.wait(f"p{n}")
    while any(detailed.everything(f"p{n}") for n in range(10)):
        pass
    assert agent.descriptors() <= before + 25


def test_a_signal_to_one_leaves_the_group(detailed: Client) -> None:
    detailed.shell("p", "sleep 1000 & echo $!; wait")
    child = int(detailed.until("p", b"\n"))
    signal_one(detailed, "p", signal.SIGKILL)
    assert detailed.wait("p").exit_code == 137
    os.kill(child, 0)
    os.kill(child, signal.SIGKILL)


# Notes and strictness


def test_a_note_outlives_the_process_and_the_agent(agent: Running, detailed: Client) -> None:
    kept = bytes(range(256)) * 256
    for process_id, script in (("running", "sleep 1000"), ("ended", "exit 0")):
        assert detailed.answer(begin(detailed, process_id, script, 0, kept)).type == wire.PROCESS
    detailed.wait("ended")
    detailed.shell("plain", "exit 0")
    assert [note(detailed, name) for name in ("running", "ended", "plain")] == [kept, kept, b""]
    agent.kill()
    agent.start()
    again = agent.connect(features=3)
    assert {process.process_id for process in again.processes()} == {"running", "ended", "plain"}
    assert [note(again, name) for name in ("running", "ended", "plain")] == [kept, kept, b""]


def test_a_note_has_a_limit_and_belongs_to_somebody(detailed: Client) -> None:
    for process_id, given, number in (("p", b"x" * 65537, errno.EINVAL), ("q", b"", errno.ESRCH)):
        with pytest.raises(Refused) as refused:
            detailed.answer(begin(detailed, process_id, "exit", 0, given)) if given else note(detailed, process_id)
        assert refused.value.errno == number


@pytest.mark.parametrize("program", ["/no/such", "no-such", "/etc/hostname", "/tmp"])
def test_strictly_a_program_that_cannot_run_is_refused(detailed: Client, program: str) -> None:
    with pytest.raises(Refused) as refused:
        detailed.spawn("p", [program], flags=wire.STRICT)
    assert refused.value.errno == errno.ENOEXEC
    assert detailed.processes() == []
    assert detailed.spawn("p", ["/bin/true"], flags=wire.STRICT).pid > 0


# Files


def test_a_path_is_resolved(detailed: Client, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "deep").symlink_to(tmp_path / "link/file")
    (tmp_path / "gone").symlink_to("nowhere")
    found = one(Entry, detailed.ask(wire.RESOLVE, raw("user") + raw(str(tmp_path / "deep"))))
    assert (found.path.decode(), found.type) == (str(tmp_path.resolve() / "real/file"), wire.FILE)
    for bad, number in (("gone", errno.ENOENT), ("missing", errno.ENOENT)):
        with pytest.raises(Refused) as refused:
            detailed.ask(wire.RESOLVE, raw("user") + raw(str(tmp_path / bad)))
        assert refused.value.errno == number


def test_attributes_are_replaced_as_a_whole(detailed: Client, tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_for(detailed, file, b"1", attributes={"a": "1", "b": "zwei"})
    os.setxattr(file, "user.other", b"stays")
    assert attributes(detailed, file) == [{PREFIX + "a": "1", PREFIX + "b": "zwei"}]
    write_for(detailed, file, b"2", attributes={"b": "2"})
    assert attributes(detailed, file) == [{PREFIX + "b": "2"}]
    write_for(detailed, file, b"3")
    assert attributes(detailed, file, tmp_path, tmp_path / "missing") == [{PREFIX + "b": "2"}, {}, {}]
    write_for(detailed, file, b"4", how=wire.REPLACING, attributes={"c": "3"})
    assert attributes(detailed, file) == [{PREFIX + "c": "3"}]
    write_for(detailed, file, b"5", attributes={})
    assert attributes(detailed, file) == [{}]
    assert os.listxattr(file) in ([], ["user.other"])


def test_attributes_too_large_are_left_out_and_too_many_files_refused(detailed: Client, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for n in range(6):
        os.setxattr(file, f"{PREFIX}{n}", b"x" * 600)
    assert len(attributes(detailed, file)[0]) == 6
    assert len(attributes(detailed, *[file] * 128)) == 128
    with pytest.raises(Refused) as refused:
        attributes(detailed, *[file] * 129)
    assert refused.value.errno == errno.EINVAL


def test_an_attribute_of_another_kind_cannot_be_set(detailed: Client, tmp_path: Path) -> None:
    payload = raw("root") + raw("") + raw(str(tmp_path / "f")) + struct.pack("<BI", wire.IN_PLACE, wire.UNCHANGED)
    with pytest.raises(Refused) as refused:
        detailed.ask(wire.OPEN_FOR, payload + raw(PREFIX) + words(["user.other", "x"]))
    assert refused.value.errno == errno.EINVAL


def test_a_file_for_nobody_who_exists_is_refused(detailed: Client, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        open_for(detailed, tmp_path / "file", owner="nobody-here")
    assert refused.value.errno == errno.EINVAL
    assert not (tmp_path / "file").exists()


# Watching


def test_acts_are_told_apart_to_who_knows_them_only(agent: Running, detailed: Client, tmp_path: Path) -> None:
    plain = agent.connect()
    (tmp_path / "old").touch()
    (tmp_path / "other").touch()
    fine, coarse = detailed.watch(str(tmp_path)), plain.watch(str(tmp_path))
    write_for(detailed, tmp_path / "new", b"x", owner="root")
    (tmp_path / "old").chmod(0o600)
    (tmp_path / "old").rename(tmp_path / "moved")
    (tmp_path / "other").rename(tmp_path / "moved")
    (tmp_path / "moved").unlink()
    for client in (detailed, plain):
        assert client.ask(wire.PING).type == wire.OK
    seen = [detailed.event(fine) for _ in range(9)]
    assert [(change, Path(path).name) for change, path in seen] == [
        (wire.CREATED, "new"),
        (wire.TOUCHED, "new"),
        (wire.MODIFIED, "new"),
        (wire.TOUCHED, "old"),
        (wire.MOVED_AWAY, "old"),
        (wire.CREATED, "moved"),
        (wire.MOVED_AWAY, "other"),
        (wire.REPLACED, "moved"),
        (wire.REMOVED, "moved"),
    ]
    assert {plain.event(coarse)[0] for _ in range(8)} == {wire.CREATED, wire.MODIFIED, wire.REMOVED}


def test_a_ping_is_answered_after_everything_that_was_seen(detailed: Client, tmp_path: Path) -> None:
    request = detailed.watch(str(tmp_path))
    for n in range(300):
        (tmp_path / f"file-{n}").touch()
    ping = detailed.send(wire.PING)
    while True:
        frame = detailed._receive()
        if frame.id == ping:
            break
        assert frame.id == request
        last = frame
    assert b"file-299" in last.payload


def test_a_ping_may_end_watches(detailed: Client, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    requests = [detailed.watch(str(folder)) for _ in range(3)]
    folder.rmdir()
    assert detailed.ask(wire.PING).type == wire.OK
    for request in requests:
        with pytest.raises(Refused) as refused:
            while True:
                detailed.event(request)
        assert refused.value.errno == errno.ENOENT
