"""``paddock shell`` and ``paddock exec -it``, typed on a real terminal."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from paddock.cli.terminal import DetachKeys, ScreenModes
from paddock.client import SyncSandboxClient
from paddock.errors import Invalid
from tests.cli.conftest import Paddock
from tests.cli.terminals import Screen, screen


def client_of(paddock: Paddock) -> SyncSandboxClient:
    return SyncSandboxClient(paddock.url, api_key=(paddock.home / "key").read_text().strip())


def test_exec_gives_a_program_the_terminal_and_passes_its_exit_code_on(paddock: Paddock, box: str) -> None:
    """The new size and what is typed go different ways into the sandbox: the program waits for the size."""
    grown = 'for _ in $(seq 400); do case "$(stty size)" in "40 90") break;; esac; sleep 0.1; done; stty size'
    line = f"stty size; printf '\\033[31mred\\033[0m'; read x; {grown}; echo got:$x:$EXTRA; exit 7"
    with screen(paddock, "exec", "-it", "--env", "EXTRA=given", box, "--", line) as shown:
        assert b"30 100" in shown.wait_for(b"\x1b[31mred\x1b[0m")
        assert shown.attributes() != shown.before
        shown.resize(40, 90)
        shown.type(b"word\r")
        assert b"40 90" in shown.wait_for(b"got:word:given")
        assert shown.end() == 7
        assert shown.attributes() == shown.before


def test_control_keys_are_the_programs(paddock: Paddock, box: str) -> None:
    """Ctrl-C interrupts what runs in the shell, Ctrl-Z stops it, and Ctrl-D ends the shell; none of them ends us.

    What runs says itself that it does: while the shell still starts it, the keys would be the shell's own."""
    with screen(paddock, "shell", box) as shown:
        shown.type(b"sh -c 'echo be\"\"gun; exec sleep 600'\r")
        shown.wait_for(b"begun")
        shown.type(b"\x03")
        shown.wait_for(b"^C")
        shown.type(b"echo code:$?; sh -c 'echo ag\"\"ain; exec sleep 601'\r")
        shown.wait_for(b"code:130")
        shown.wait_for(b"again")
        shown.type(b"\x1a")
        shown.wait_for(b"Stopped")
        shown.type(b"kill %1; wait; echo do''ne\r")
        shown.wait_for(b"done")
        shown.wait_for(b"$ ")  # what is typed before the shell reads keys again is no key to it
        shown.type(b"\x04")
        shown.end()
        assert shown.attributes() == shown.before


def detach(shown: Screen) -> str:
    """The id of what was left."""
    shown.type(b"\x1d")
    said = shown.wait_for(b"--attach p_") + shown.wait_for(b"`")
    assert shown.end() == 0
    assert shown.attributes() == shown.before
    return re.findall(rb"p_[0-9a-f]+", said)[-1].decode()


def test_a_shell_that_was_left_runs_on_and_is_gone_back_to(paddock: Paddock, box: str) -> None:
    with screen(paddock, "shell", box) as shown:
        shown.type(b"mark=kept; echo re''ady\r")
        shown.wait_for(b"ready")
        process_id = detach(shown)
    with client_of(paddock) as client:
        assert client.get_process(box, process_id).status == "running"
    with screen(paddock, "shell", box, "--attach", process_id) as again:
        again.type(b"echo $mark:back; stty size; exit 9\r")
        again.wait_for(b"kept:back")
        again.wait_for(b"30 100")
        assert again.end() == 9


def test_a_kill_gives_the_terminal_back_as_it_was(paddock: Paddock, box: str) -> None:
    line = "printf '\\033[?1049h\\033[?25l\\033[?1000;1006hon'; exec sleep 600"
    with screen(paddock, "exec", "-it", box, "--", line) as shown:
        shown.wait_for(b"on")
        shown.process.send_signal(signal.SIGTERM)
        assert shown.end() == 128 + signal.SIGTERM
        assert shown.attributes() == shown.before
        for undone in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1006l"):
            assert undone in shown.shown
        assert b"--attach p_" in shown.shown


def test_a_terminal_that_is_closed_hangs_up(paddock: Paddock, box: str) -> None:
    with screen(paddock, "exec", "-it", box, "--", "echo on; exec sleep 600") as shown, client_of(paddock) as client:
        shown.wait_for(b"on")
        process_id = max(client.list_processes(box), key=lambda process: process.started_at).process_id
        shown.hang_up()
        assert shown.process.wait(60) == 128 + signal.SIGHUP
        assert client.wait_process(box, process_id, timeout=60).exit_code == 128 + signal.SIGHUP


@contextmanager
def cuttable(url: str) -> Iterator[tuple[str, threading.Event]]:
    """A way to the server that can be cut."""
    there, cut = (urlsplit(url).hostname or "", urlsplit(url).port or 0), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(there)
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    def wait_for_cut() -> None:
        cut.wait()
        listener.close()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=work, daemon=True) for work in (accept, wait_for_cut)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", cut
    finally:
        cut.set()
        threads[1].join()
        for end in ends:
            end.close()


def test_a_connection_that_is_lost_gives_the_terminal_back_and_says_how_to_go_on(paddock: Paddock, box: str) -> None:
    with cuttable(paddock.url) as (url, cut), screen(replace(paddock, url=url), "shell", box) as shown:
        shown.type(b"echo re''ady\r")
        shown.wait_for(b"ready")
        cut.set()
        assert shown.end() == 1
        assert shown.attributes() == shown.before
        assert b"connection was lost" in shown.shown
        assert b"--attach p_" in shown.shown


def test_run_gives_a_new_sandbox_the_terminal_and_deletes_it(paddock: Paddock) -> None:
    with screen(paddock, "run", "-it", "--user-id", "runner", "--", "tty; read x; exit 5") as shown:
        shown.wait_for(b"/dev/pts/")
        shown.type(b"\x1d\r")  # the detach keys are the program's here: what it runs in would go with it
        assert shown.end() == 5
    assert not paddock.json("list", "--user-id", "runner")["sandboxes"]


def test_what_cannot_be_done_is_said_in_a_sentence(paddock: Paddock, box: str) -> None:
    assert "not a terminal" in paddock("exec", "-it", box, "--", "ls", check=1).stderr
    assert "not a terminal" in paddock("shell", box, check=1).stderr
    assert "paddock shell ID" in paddock("shell", check=1).stderr
    with screen(paddock, "shell", "alice_00000000") as shown:
        assert shown.end() == 1
        assert b"Error:" in shown.shown
        assert shown.attributes() == shown.before


@pytest.mark.parametrize(
    ("keys", "typed", "passed", "left"),
    [
        ("ctrl-]", [b"ab\x1dc"], b"ab", True),
        ("ctrl-p,ctrl-q", [b"a\x10b\x10", b"\x11"], b"a\x10b", True),
        ("ctrl-p,ctrl-q", [b"\x10\x10\x11"], b"\x10", True),
        ("", [b"\x1d\x10\x11"], b"\x1d\x10\x11", False),
        ("~,.", [b"a.~", b"x"], b"a.~x", False),
    ],
)
def test_detach_keys_are_taken_out_of_what_is_typed(keys: str, typed: list[bytes], passed: bytes, left: bool) -> None:
    found = DetachKeys(keys)
    taken = [found.take(each) for each in typed]
    assert b"".join(each for each, _ in taken) == passed
    assert taken[-1][1] is left


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(Invalid, match="ctrl-"):
        DetachKeys("ctrl-1")


def test_modes_are_followed_across_pieces_and_undone_once() -> None:
    modes = ScreenModes()
    for piece in (b"text\x1b[?10", b"49h\x1b[?25", b"l\x1b[?7h\x1b=\x1b[>1u\x1b[>4;2m\x1b[?2004h\x1b[?2004l"):
        modes.feed(piece)
    assert modes.undo() == b"\x1b[<u\x1b[>4;0m\x1b>\x1b[?25h\x1b[?1049l\x1b[0m"
    assert modes.undo() == b""
