"""An agent that inherits nothing asks for its descriptors at a socket, as the first process of a container does."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.client import Client
from tests.support.waiting import PATIENCE_S

NO_FILTERS = struct.pack("<II", 0, 0)


class Nursery:
    """The server's side: a door to ask at, and the listener that whoever asks gets."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.keep = folder / "deep" / "state"
        self.path = str(folder / "agent.sock")
        self.birth = str(folder / "birth.sock")
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(self.birth)
        self.door.listen()
        self.door.settimeout(PATIENCE_S)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [str(self.binary), "serve", "--birth", self.birth, "--keep", str(self.keep), "--mode", "plain"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE)
        return self.process

    def caller(self) -> socket.socket:
        return self.door.accept()[0]

    def give(self, caller: socket.socket) -> None:
        Path(self.path).unlink(missing_ok=True)
        filters = os.memfd_create("filters")
        os.write(filters, NO_FILTERS)
        os.lseek(filters, 0, os.SEEK_SET)
        with caller, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen()
            socket.send_fds(caller, [b"b"], [listener.fileno(), filters])
        os.close(filters)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def nursery(plain_binary: Path) -> Iterator[Nursery]:
    # A socket's path is at most 107 bytes, and pytest's are longer.
    folder = Path(f"/tmp/paddock-birth-{os.getpid()}-{os.urandom(4).hex()}")
    folder.mkdir(mode=0o700)
    made = Nursery(plain_binary, folder)
    yield made
    made.end()
    made.door.close()
    subprocess.run(["rm", "-rf", folder], check=True)


def test_it_serves_on_the_listener_that_it_was_given(nursery: Nursery) -> None:
    nursery.start()
    nursery.give(nursery.caller())
    client = Client(nursery.path)
    ended, out, _ = client.run("p", "echo born")
    assert (ended.exit_code, out) == (0, b"born\n")
    client.close()


def test_its_records_are_private_and_outlive_it(nursery: Nursery) -> None:
    nursery.start()
    nursery.give(nursery.caller())
    client = Client(nursery.path)
    client.run("p", "echo first life")
    client.close()
    assert nursery.keep.stat().st_mode & 0o777 == 0o700
    nursery.end()
    nursery.start()
    nursery.give(nursery.caller())
    client = Client(nursery.path)
    assert [process.process_id for process in client.processes()] == ["p"]
    client.close()


def test_without_anybody_at_the_door_it_ends_and_says_so(nursery: Nursery) -> None:
    nursery.door.close()
    process = nursery.start()
    assert process.stderr is not None
    assert process.stderr.read().startswith(b"paddock-agent: nobody gave birth")
    assert process.wait(PATIENCE_S) == 1


def test_a_server_that_dies_at_the_door_is_no_server(nursery: Nursery) -> None:
    process = nursery.start()
    nursery.caller().close()
    assert process.wait(PATIENCE_S) == 1


def test_whoever_brings_something_else_is_not_believed(nursery: Nursery) -> None:
    process = nursery.start()
    with nursery.caller() as caller:
        socket.send_fds(caller, [b"b"], [nursery.door.fileno()])
        assert process.wait(PATIENCE_S) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--birth", "/x"],
        ["--keep", "/x"],
        ["--birth", "/x", "--keep", "/y", "--filter", "3"],
        ["--birth", "/x", "--keep", "/y", "--listen", "3", "--state", "4"],
    ],
    ids=" ".join,
)
def test_it_is_born_or_it_inherits_never_both(plain_binary: Path, options: list[str]) -> None:
    command = [str(plain_binary), "serve", "--mode", "plain", *options]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 2
