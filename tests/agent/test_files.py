"""Files: each wrong kind its own error, old or new but never half, and nothing ever hangs."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Payload, Refused, names_in, raw
from tests.agent.conftest import Running

EVERY_BYTE = bytes(range(256)) * 3


def number_of(call: object, *arguments: object, **options: object) -> int:
    assert callable(call)
    with pytest.raises(Refused) as refused:
        call(*arguments, **options)
    return refused.value.errno


@pytest.mark.parametrize("how", [wire.REPLACING, wire.IN_PLACE])
@pytest.mark.parametrize("data", [b"", b"x", EVERY_BYTE])
def test_what_is_written_is_what_is_read(client: Client, tmp_path: Path, data: bytes, how: int) -> None:
    path = str(tmp_path / "file")
    client.put(path, b"an older and longer content" * 100, how)
    entry = client.put(path, data, how)
    assert client.get(path) == data == (tmp_path / "file").read_bytes()
    assert (entry.path.decode(), entry.type, entry.size) == (path, wire.FILE, len(data))


def test_an_entry_tells_everything(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    path.chmod(0o4751)
    os.utime(path, ns=(1, 1_600_000_000_123_456_789))
    entry = client.stat(str(path))
    assert (entry.type, entry.size, entry.mode, entry.target) == (wire.FILE, 5, 0o4751, b"")
    assert entry.modified_us == 1_600_000_000_123_456
    assert (entry.uid, entry.gid) == (os.getuid(), os.getgid())
    assert (entry.owner, entry.group) == (path.owner(), path.group())


def test_stat_follows_only_when_asked(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "fifo")
    link = client.stat(str(tmp_path / "link"))
    assert (link.type, link.target) == (wire.SYMLINK, b"file")
    followed = client.stat(str(tmp_path / "link"), follow=True)
    assert (followed.type, followed.size, followed.target) == (wire.FILE, 5, b"")
    assert client.stat(str(tmp_path / "dangling")).target == b"/nowhere"
    assert number_of(client.stat, str(tmp_path / "dangling"), follow=True) == errno.ENOENT
    assert client.stat(str(tmp_path)).type == client.stat("/").type == wire.DIRECTORY
    assert client.stat(str(tmp_path / "fifo")).type == wire.OTHER


def test_paths_and_users_that_mean_nothing(client: Client, tmp_path: Path) -> None:
    for path in ("relative", ""):
        for call in (client.stat, client.listing, client.open, client.mkdir, client.remove, client.watch):
            assert number_of(call, path) == errno.EINVAL
    assert number_of(client.move, str(tmp_path), "relative") == errno.EINVAL
    assert number_of(client.stat, "/", user="nobody-here") == errno.EINVAL
    assert number_of(client.stat, "/", user="99999999999") == errno.EINVAL
    assert number_of(client.stat, str(tmp_path / ("x" * 300))) == errno.ENAMETOOLONG
    assert number_of(client.open, str(tmp_path / ("x" * 300)), wire.REPLACING) == errno.ENAMETOOLONG
    assert number_of(client.stat, "/" + "a/" * 3000) == errno.ENAMETOOLONG
    assert number_of(client.listing, "/" + "a/" * 3000) == errno.ENAMETOOLONG
    assert number_of(client.watch, "/" + "a/" * 3000) == errno.ENAMETOOLONG
    assert number_of(client.open, str(tmp_path / "x"), 3) == errno.EINVAL


def test_missing_parents_are_made_for_writing(client: Client, tmp_path: Path) -> None:
    for how, name in ((wire.REPLACING, "a/b/one"), (wire.IN_PLACE, "c//d/two")):
        client.put(str(tmp_path / name), b"deep", how)
    assert (tmp_path / "a/b/one").read_bytes() == (tmp_path / "c/d/two").read_bytes() == b"deep"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_modes_are_set_and_kept(client: Client, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    assert client.put(path, b"").mode == 0o644
    assert client.put(path, b"", mode=0o755).mode == 0o755
    assert client.put(path, b"again").mode == 0o755
    assert client.put(path, b"", wire.IN_PLACE).mode == 0o755
    assert client.put(path, b"", wire.IN_PLACE, mode=0o600).mode == 0o600
    assert client.chmod(path, 0o640).mode == 0o640


def test_an_uncommitted_replacement_leaves_the_old_file_and_nothing_else(
    client: Client, agent: Running, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    token, fd, _ = client.open(str(tmp_path / "file"), wire.REPLACING)
    assert fd is not None
    os.write(fd, b"half of the new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [entry.path for entry in client.listing(str(tmp_path))[0]] == [bytes(tmp_path / "file")]
    assert client.ask(wire.CLOSE, struct.pack("<I", token)).type == wire.OK
    os.close(fd)
    assert names_in(tmp_path) == ["file"]
    client.open(str(tmp_path / "file"), wire.REPLACING)
    assert len(names_in(tmp_path)) == 2
    client.close()
    other = agent.connect()
    for _ in range(1000):
        if names_in(tmp_path) == ["file"]:
            break
        other.ask(wire.PING)
    assert names_in(tmp_path) == ["file"]


def test_tokens_are_checked(client: Client, agent: Running, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    reading, fd, _ = client.open(str(tmp_path / "file"))
    assert fd is not None
    os.close(fd)
    for kind, token in ((wire.COMMIT, reading), (wire.COMMIT, 99), (wire.CLOSE, 99), (wire.CLOSE, 0)):
        assert number_of(client.ask, kind, struct.pack("<I", token)) == errno.EBADF
    assert number_of(agent.connect().ask, wire.CLOSE, struct.pack("<I", reading)) == errno.EBADF
    for _ in range(255):
        os.close(client.open(str(tmp_path / "file"))[1] or -1)
    assert number_of(client.open, str(tmp_path / "file")) == errno.EAGAIN


def test_writing_goes_through_a_symlink_to_what_it_stands_for(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir/file")
    (tmp_path / "absolute").symlink_to(tmp_path / "link")
    client.put(str(tmp_path / "absolute"), b"through")
    assert (tmp_path / "dir/file").read_bytes() == b"through"
    assert (tmp_path / "absolute").is_symlink() and (tmp_path / "link").is_symlink()
    (tmp_path / "circle").symlink_to("circle")
    assert number_of(client.put, str(tmp_path / "circle"), b"") == errno.ELOOP


def test_a_directory_is_not_a_file_and_a_file_not_a_directory(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/file").write_bytes(b"x")
    below = str(tmp_path / "dir/file/below")
    for how in (wire.READING, wire.REPLACING, wire.IN_PLACE):
        assert number_of(client.open, str(tmp_path / "dir"), how) == errno.EISDIR
        assert number_of(client.open, below, how) == errno.ENOTDIR
    assert number_of(client.open, str(tmp_path / "dir") + "/", wire.REPLACING) == errno.EISDIR
    assert number_of(client.listing, str(tmp_path / "dir/file")) == errno.ENOTDIR
    assert number_of(client.mkdir, str(tmp_path / "dir/file")) == errno.EEXIST
    assert number_of(client.mkdir, below) == errno.ENOTDIR
    assert number_of(client.stat, below) == errno.ENOTDIR
    assert number_of(client.open, str(tmp_path / "missing")) == errno.ENOENT


def test_a_fifo_a_socket_and_a_device_are_refused_at_once(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the whole path may be longer than a socket's address
        listener.bind("socket")
        for path in (str(tmp_path / "fifo"), str(tmp_path / "socket"), "/dev/null"):
            for how in (wire.READING, wire.REPLACING, wire.IN_PLACE):
                assert number_of(client.open, path, how) == errno.EINVAL
    client.remove(str(tmp_path / "fifo"))


def test_making_a_directory_tells_whether_it_was_there(client: Client, tmp_path: Path) -> None:
    path = str(tmp_path / "x/y/z")
    assert client.mkdir(path) is True
    assert client.mkdir(path + "/") is client.mkdir(str(tmp_path / "x")) is client.mkdir("/") is False
    assert client.mkdir(str(tmp_path / "open"), 0o1777)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o1777
    (tmp_path / "link").symlink_to("x")
    assert client.mkdir(str(tmp_path / "link/new")) is True
    (tmp_path / "dangling").symlink_to("nowhere")
    assert number_of(client.mkdir, str(tmp_path / "dangling")) == errno.EEXIST


def test_nothing_can_be_made_in_proc(client: Client) -> None:
    assert number_of(client.mkdir, "/proc/x") == errno.EACCES
    for how in (wire.REPLACING, wire.IN_PLACE):
        assert number_of(client.open, "/proc/x", how) == errno.EACCES


def test_moving(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/file").write_bytes(b"content")
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "link").symlink_to("other")

    def move(source: str, target: str) -> wire.Entry:
        return client.move(str(tmp_path / source), str(tmp_path / target))

    assert move("dir/file", "dir/renamed").path == bytes(tmp_path / "dir/renamed")
    assert move("dir", "new").type == wire.DIRECTORY
    assert move("link", "moved").target == b"other"
    assert move("new/renamed", "other").size == 7
    assert number_of(move, "missing", "x") == errno.ENOENT
    assert number_of(move, "other", "no/such/place") == errno.ENOENT
    assert number_of(move, "other", "new") == errno.EISDIR
    assert number_of(move, "new", "new/below") == errno.EINVAL
    assert (
        number_of(client.move, "/", str(tmp_path / "x"))
        == number_of(client.move, str(tmp_path / "x"), "//")
        == errno.EPERM
    )
    assert move("other", "other").size == 7


def test_bytes_may_go_in_frames_where_descriptors_cannot(agent: Running, tmp_path: Path) -> None:
    client = agent.connect(features=0)
    path = str(tmp_path / "file")
    token, fd, _ = client.open(path, wire.REPLACING)
    assert fd is None
    data = os.urandom(3 << 20)
    for at in range(0, len(data), 1 << 20):
        part = raw(data[at : at + (1 << 20)])
        assert client.ask(wire.PWRITE, struct.pack("<IQ", token, at) + part).type == wire.OK
    client.ask(wire.COMMIT, struct.pack("<I", token))
    assert (tmp_path / "file").read_bytes() == data
    token, fd, _ = client.open(path)
    assert fd is None
    got = Payload(client.ask(wire.PREAD, struct.pack("<IQI", token, 7, 1 << 30)).payload).blob()
    assert got == data[7 : 7 + (1 << 20)]
    assert Payload(client.ask(wire.PREAD, struct.pack("<IQI", token, 1 << 40, 9)).payload).blob() == b""
    assert number_of(client.ask, wire.PREAD, struct.pack("<IQI", token, 1 << 63, 9)) == errno.EINVAL
    assert number_of(client.ask, wire.PWRITE, struct.pack("<IQ", token, 0) + raw("x")) == errno.EBADF
    assert number_of(client.ask, wire.PREAD, struct.pack("<IQI", 99, 0, 9)) == errno.EBADF
    assert number_of(client.ask, wire.DIAL, struct.pack("<H", 80)) == errno.EOPNOTSUPP


def test_awkward_names_are_just_names(client: Client, tmp_path: Path) -> None:
    for name in (b"with space", b"new\nline", b"-rf", "ü😀".encode(), b"\xff\xfe", b"a" * 255):
        path = bytes(tmp_path) + b"/" + name
        client.put(path, name)
        assert client.get(path) == name
        assert client.stat(path).path == path
        client.remove(path)
    assert client.listing(str(tmp_path)) == ([], False)


@pytest.mark.parametrize("path", ["/proc/self", "/proc/thread-self", "/proc/{pid}", "/proc/{pid}/task/{pid}"])
def test_the_agents_own_proc_is_closed(client: Client, agent: Running, tmp_path: Path, path: str) -> None:
    """In the agent `self` is the agent, and a process may always read and write its own memory."""
    path = path.format(pid=agent.pid)
    (tmp_path / "link").symlink_to(f"{path}/mem")
    for name in (f"{path}/maps", f"{path}/mem", f"{path}/environ", f"{path}/status", str(tmp_path / "link")):
        for how in (wire.READING, wire.IN_PLACE):
            assert number_of(client.open, name, how) == errno.EACCES
        assert number_of(client.stat, name, follow=True) == errno.EACCES
        assert number_of(client.chmod, name, 0o777) == errno.EACCES
    for name in (path, f"{path}/fd", f"{path}/ns"):
        assert number_of(client.listing, name) == errno.EACCES
        assert number_of(client.watch, name) == errno.EACCES
        assert number_of(client.stat, f"{name}/x") == errno.EACCES
    assert client.stat("/proc/self").type == wire.SYMLINK


def test_links_that_jump_are_not_followed(client: Client, agent: Running, tmp_path: Path) -> None:
    client.run("p", "echo x")
    (agent.state / "mark").write_bytes(b"state")
    closed = {errno.ELOOP, errno.EACCES, errno.ENOENT}
    for fd in names_in(f"/proc/{agent.pid}/fd"):
        for process in ("self", str(agent.pid), str(os.getpid())):
            jump = f"/proc/{process}/fd/{fd}"
            (tmp_path / "link").unlink(missing_ok=True)
            (tmp_path / "link").symlink_to(jump)
            for path in (jump, str(tmp_path / "link")):
                for look in (client.listing, client.watch):
                    assert number_of(look, path) in closed
                for change in (client.open, client.remove, client.mkdir):
                    assert number_of(change, f"{path}/mark") in closed | {errno.EEXIST}
                assert number_of(client.put, f"{path}/new", b"") in closed | {errno.EEXIST}
        # Only its own: whether another's may be entered is for the kernel to say, in a sandbox (test_modes).
        assert number_of(client.shell, "q", "true", cwd=f"/proc/self/fd/{fd}") in closed | {errno.ENOTDIR}
    for name in ("root", "cwd"):
        assert number_of(client.stat, f"/proc/{os.getpid()}/{name}/etc/passwd") == errno.ELOOP
    assert (agent.state / "mark").read_bytes() == b"state"
