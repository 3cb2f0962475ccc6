"""Listing, removing and moving whole trees: any depth, any number, never through a symlink."""

from __future__ import annotations

import errno
import os
import struct
import time
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, names_in, raw
from tests.agent.conftest import Running
from tests.agent.test_files import number_of


def names(client: Client, path: Path, depth: int = 1, limit: int = 1 << 20) -> list[str]:
    entries, truncated = client.listing(str(path), depth, limit)
    assert truncated == (len(entries) == limit)
    return sorted(os.fsdecode(entry.path).removeprefix(f"{path}/") for entry in entries)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a/b/c").mkdir(parents=True)
    for name in ("z", "a/1", "a/b/2", "a/b/c/3"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "out").symlink_to("/etc")
    return tmp_path


def test_a_listing_goes_as_deep_as_asked_and_not_through_symlinks(client: Client, tree: Path) -> None:
    assert names(client, tree) == ["a", "link", "out", "z"]
    assert names(client, tree, 2) == ["a", "a/1", "a/b", "link", "out", "z"]
    assert names(client, tree, 99) == ["a", "a/1", "a/b", "a/b/2", "a/b/c", "a/b/c/3", "link", "out", "z"]
    assert names(client, tree / "link") == ["1", "b"]
    assert number_of(client.listing, str(tree), 0) == errno.EINVAL
    assert number_of(client.listing, str(tree / "none"), 5) == errno.ENOENT
    assert "/proc" in [entry.path.decode() for entry in client.listing("/")[0]]


def test_a_listing_ends_at_its_maximum_and_says_so(client: Client, tmp_path: Path) -> None:
    for n in range(2000):
        (tmp_path / f"{n:04}").touch()
    assert len(names(client, tmp_path)) == 2000
    assert len(names(client, tmp_path, 2)) == 2000
    for limit in (0, 1, 256, 257, 1999, 2000):
        entries, truncated = client.listing(str(tmp_path), 1, limit)
        assert (len(entries), truncated) == (limit, limit < 2000)


def test_a_tree_is_removed_and_what_its_symlinks_mean_is_not(client: Client, tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tree / "a/out").symlink_to(outside)
    assert number_of(client.remove, str(tree / "a")) == errno.ENOTEMPTY
    client.remove(str(tree / "link"), recursive=True)
    client.remove(str(tree / "a"), recursive=True)
    assert names(client, tree, 9) == ["out", "outside", "outside/file", "z"]
    assert number_of(client.remove, str(tree / "none"), recursive=True) == errno.ENOENT
    for root in ("/", "//"):
        assert number_of(client.remove, root, recursive=True) == errno.EPERM
    client.remove(str(tree / "z"), recursive=True)


def test_a_very_deep_and_wide_tree_is_removed(client: Client, tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)
    for n in range(1000):
        (tmp_path / "deep" / f"{n}").mkdir()
        (tmp_path / "deep" / f"{n}" / "file").touch()
    client.remove(str(tmp_path / "deep"), recursive=True)
    assert names_in(tmp_path) == []


def test_others_are_answered_while_a_tree_is_removed(client: Client, agent: Running, tmp_path: Path) -> None:
    for n in range(200):
        (tmp_path / "tree" / f"{n}").mkdir(parents=True)
        for m in range(20):
            (tmp_path / "tree" / f"{n}" / f"{m}").touch()
    removing = client.send(wire.REMOVE, raw("user") + raw(str(tmp_path / "tree")) + b"\1")
    assert agent.connect().ask(wire.PING).type == wire.OK
    assert client.answer(removing).type == wire.OK


def test_a_long_listing_can_be_cancelled(client: Client, tmp_path: Path) -> None:
    for n in range(3000):
        (tmp_path / f"{n}").touch()
    request = client.send(wire.LIST_DIR, raw("user") + raw(str(tmp_path)) + struct.pack("<II", 9, 1 << 20))
    client.send(wire.CANCEL, struct.pack("<I", request))
    while (frame := client.next(request)).type == wire.ENTRIES:
        pass
    assert frame.type in (wire.ERROR, wire.END)
    assert len(names(client, tmp_path, 2)) == 3000


def test_a_client_that_reads_slowly_still_gets_a_whole_listing(client: Client, agent: Running, tmp_path: Path) -> None:
    for n in range(5000):
        (tmp_path / f"{n}{'x' * 200}").touch()
    slow = agent.connect()
    request = slow.send(wire.LIST_DIR, raw("user") + raw(str(tmp_path)) + struct.pack("<II", 2, 1 << 20))
    time.sleep(0.3)
    assert client.ask(wire.PING).type == wire.OK
    total = 0
    while (frame := slow.answer(request)).type == wire.ENTRIES:
        total += struct.unpack_from("<I", frame.payload)[0]
    assert total == 5000


@pytest.fixture
def elsewhere() -> Path:
    """A directory of another file system."""
    for candidate in ("/dev/shm", "/run"):
        if os.access(candidate, os.W_OK) and Path(candidate).stat().st_dev != Path("/tmp").stat().st_dev:
            return Path(candidate)
    pytest.skip("no second file system to write to")


def test_moving_to_another_file_system_keeps_everything(client: Client, tree: Path, elsewhere: Path) -> None:
    (tree / "a/b/2").write_bytes(os.urandom(3 << 20))
    (tree / "a/b/2").chmod(0o751)
    (tree / "a/closed").mkdir(0o500)
    os.mkfifo(tree / "a/fifo")
    (tree / "a/out").symlink_to("/etc")
    os.utime(tree / "a/b", ns=(1_500_000_000_000_000_000,) * 2)
    content, looks = (tree / "a/b/2").read_bytes(), client.listing(str(tree / "a"), 9)[0]
    target = elsewhere / f"paddock-{os.getpid()}-{time.monotonic_ns()}"
    entry = client.move(str(tree / "a"), str(target))
    try:
        assert (entry.path, entry.type) == (bytes(target), wire.DIRECTORY)
        assert not (tree / "a").exists()
        assert (target / "b/2").read_bytes() == content
        assert not [name for name in names_in(elsewhere) if name.startswith(".paddock-writing-")]

        def told(entries: list[wire.Entry], root: Path) -> set[tuple[object, ...]]:
            return {
                (entry.path.removeprefix(bytes(root)), entry.type, entry.mode, entry.modified_us, entry.target)
                for entry in entries
            }

        assert told(client.listing(str(target), 9)[0], target) == told(looks, tree / "a")
    finally:
        client.remove(str(target), recursive=True)


def test_a_move_to_another_file_system_that_fails_leaves_the_source(
    client: Client, tree: Path, elsewhere: Path
) -> None:
    target = elsewhere / f"paddock-{os.getpid()}-{time.monotonic_ns()}"
    (target / "full").mkdir(parents=True)
    try:
        assert number_of(client.move, str(tree / "a"), str(target)) == errno.ENOTEMPTY
        assert number_of(client.move, str(tree / "a"), str(target / "none/x")) == errno.ENOENT
        assert len(names(client, tree / "a", 9)) == 5
        assert names_in(target) == ["full"]
    finally:
        client.remove(str(target), recursive=True)


def test_a_worker_that_is_killed_is_an_error(client: Client, agent: Running, tmp_path: Path) -> None:
    for n in range(20000):
        (tmp_path / f"{n}{'x' * 100}").touch()
    request = client.send(wire.LIST_DIR, raw("user") + raw(str(tmp_path)) + struct.pack("<II", 9, 1 << 20))
    assert client.next(request).type == wire.ENTRIES
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    if not children:
        pytest.skip("the worker was faster")
    os.kill(int(children[0]), 9)
    while (frame := client.next(request)).type == wire.ENTRIES:
        pass
    assert frame.type == wire.END or struct.unpack_from("<i", frame.payload)[0] == errno.EIO
