"""Watching: armed when it is answered, every change below, nothing from elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import CREATED, MODIFIED, REMOVED, Client, Refused, raw
from tests.agent.conftest import Running
from tests.agent.test_files import number_of

Event = tuple[int, str]


def until(client: Client, request: int, path: Path, change: int) -> list[Event]:
    seen: list[Event] = []
    while (change, str(path)) not in seen:
        seen.append(client.event(request))
    return seen


def test_a_change_right_after_the_answer_is_never_missed(client: Client, tmp_path: Path) -> None:
    for n in range(20):
        request = client.watch(str(tmp_path))
        (tmp_path / f"{n}").touch()
        until(client, request, tmp_path / f"{n}", CREATED)
        client.send(wire.CANCEL, struct.pack("<I", request))


def test_create_modify_and_remove_are_told_in_order(client: Client, tmp_path: Path) -> None:
    request = client.watch(str(tmp_path))
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").unlink()
    changes = [change for change, _ in until(client, request, tmp_path / "file", REMOVED)]
    assert changes == sorted(changes) and set(changes) == {CREATED, MODIFIED, REMOVED}


def test_replacing_a_file_is_a_change_of_it_and_nothing_else(client: Client, tmp_path: Path) -> None:
    client.put(str(tmp_path / "file"), b"old")
    request = client.watch(str(tmp_path))
    client.put(str(tmp_path / "file"), b"new")
    client.put(str(tmp_path / "new"), b"new")
    seen = until(client, request, tmp_path / "new", CREATED)
    assert set(seen) == {(MODIFIED, str(tmp_path / "file")), (CREATED, str(tmp_path / "new"))}


def test_many_writes_at_once_are_one_change(client: Client, agent: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    request = client.watch(str(tmp_path))
    os.kill(agent.pid, signal.SIGSTOP)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(b"x")
    (tmp_path / "marker").touch()
    os.kill(agent.pid, signal.SIGCONT)
    seen = until(client, request, tmp_path / "marker", CREATED)
    assert seen.count((MODIFIED, str(tmp_path / "file"))) == 1


def test_below_is_told_only_when_asked_for(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir/sub").mkdir(parents=True)
    flat, deep = client.watch(str(tmp_path)), client.watch(str(tmp_path) + "/", recursive=True)
    (tmp_path / "dir/sub/file").touch()
    (tmp_path / "marker").touch()
    assert [path for _, path in until(client, flat, tmp_path / "marker", CREATED)] == [str(tmp_path / "marker")]
    assert (CREATED, str(tmp_path / "dir/sub/file")) in until(client, deep, tmp_path / "marker", CREATED)


def test_directories_made_while_watching_are_watched_with_what_is_in_them(client: Client, tmp_path: Path) -> None:
    request = client.watch(str(tmp_path), recursive=True)
    for n in range(20):
        deep = tmp_path / f"{n}/b/c"
        deep.mkdir(parents=True)
        (deep / "early").touch()
        seen = until(client, request, deep / "early", CREATED)
        assert len(seen) == len(set(seen)), "each is told once"
        (deep / "late").touch()
        until(client, request, deep / "late", CREATED)


def test_a_directory_moved_in_and_out_is_followed(client: Client, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (outside / "dir/sub").mkdir(parents=True)
    inside.mkdir()
    request = client.watch(str(inside), recursive=True)
    shutil.move(outside / "dir", inside / "dir")
    (inside / "dir/sub/more").touch()
    assert (CREATED, str(inside / "dir")) in until(client, request, inside / "dir/sub/more", CREATED)
    shutil.move(inside / "dir", outside / "dir")
    until(client, request, inside / "dir", REMOVED)
    (outside / "dir/sub/elsewhere").touch()
    (inside / "marker").touch()
    assert until(client, request, inside / "marker", CREATED) == [(CREATED, str(inside / "marker"))]


def test_a_symlink_is_not_watched_through(client: Client, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here/link").symlink_to(tmp_path / "elsewhere")
    request = client.watch(str(tmp_path / "here"), recursive=True)
    (tmp_path / "elsewhere/file").touch()
    (tmp_path / "here/marker").touch()
    seen = until(client, request, tmp_path / "here/marker", CREATED)
    assert {path for _, path in seen} == {str(tmp_path / "here/marker")}


def test_only_a_directory_that_is_there_can_be_watched(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert number_of(client.watch, str(tmp_path / "missing")) == errno.ENOENT
    assert number_of(client.watch, str(tmp_path / "file")) == errno.ENOTDIR


def test_the_watch_ends_with_its_directory(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    request = client.watch(str(tmp_path / "dir"))
    (tmp_path / "dir").rmdir()
    assert client.event(request) == (REMOVED, str(tmp_path / "dir"))
    with pytest.raises(Refused) as refused:
        client.event(request)
    assert refused.value.errno == errno.ENOENT


def test_lost_events_end_the_watch(client: Client, agent: Running, tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 20000:
        pytest.skip("the kernel keeps too many events here")
    request = client.watch(str(tmp_path))
    os.kill(agent.pid, signal.SIGSTOP)
    for n in range(most // 2 + 100):
        os.close(os.open(tmp_path / f"{n}", os.O_CREAT | os.O_WRONLY))
        (tmp_path / f"{n}").unlink()
    os.kill(agent.pid, signal.SIGCONT)
    with pytest.raises(Refused) as refused:
        while True:
            client.event(request)
    assert refused.value.errno == errno.EOVERFLOW
    assert client.ask(wire.PING).type == wire.OK


def test_watching_a_large_tree_does_not_stop_the_others(client: Client, agent: Running, tmp_path: Path) -> None:
    for n in range(1000):
        (tmp_path / f"{n % 30}/{n}").mkdir(parents=True)
    request = client.send(wire.WATCH, raw("user") + raw(str(tmp_path)) + b"\1")
    assert agent.connect().ask(wire.PING).type == wire.OK
    assert client.answer(request).type == wire.OK
    (tmp_path / "9/999/file" if (tmp_path / "9/999").exists() else tmp_path / "0/0/file").touch()
    assert client.event(request)[0] == CREATED


def test_a_watch_leaves_nothing_behind(client: Client, agent: Running, tmp_path: Path) -> None:
    before = agent.descriptors()
    for _ in range(50):
        request = client.watch(str(tmp_path), recursive=True)
        client.send(wire.CANCEL, struct.pack("<I", request))
        with pytest.raises(Refused):
            client.answer(request)
    assert agent.descriptors() == before
