"""Terminals: real ones, of the size asked for, that anyone can type into."""

from __future__ import annotations

import signal
import struct

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, raw

TERMINAL = {"flags": wire.WITH_TERMINAL, "rows": 33, "cols": 101}


def test_a_terminal_is_one_of_the_size_asked_for(client: Client) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size; tty; echo $TERM"
    ended, out, err = client.run("p", script, **TERMINAL)
    size, name, kind, _ = out.decode().split("\r\n")
    assert (size, kind, err) == ("33 101", "xterm-256color", b"")
    assert name.startswith("/dev/pts/")
    assert ended.terminal


def test_all_output_of_a_terminal_is_on_stdout(client: Client) -> None:
    _, out, err = client.run("p", "echo out; echo err >&2", **TERMINAL)
    assert (out, err) == (b"out\r\nerr\r\n", b"")


def test_resizing_is_seen_inside(client: Client) -> None:
    client.shell("p", "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.01; done", **TERMINAL)
    client.until("p", b"up")
    assert client.ask(wire.RESIZE, raw("p") + struct.pack("<HH", 50, 132)).type == wire.OK
    client.wait("p")
    assert client.everything("p").endswith(b"50 132\r\n")
    with pytest.raises(wire.Refused):
        client.ask(wire.RESIZE, raw("p") + struct.pack("<HH", 50, 132))


def test_what_is_typed_arrives_and_is_echoed(client: Client) -> None:
    client.shell("p", "read line; echo got $line", **TERMINAL)
    client.ask(wire.STDIN, raw("p") + raw("word\n"))
    client.wait("p")
    assert client.everything("p") == b"word\r\ngot word\r\n"


def test_control_c_interrupts(client: Client) -> None:
    client.shell("p", "trap 'exit 4' INT; echo up; while :; do sleep 0.01; done", **TERMINAL)
    client.until("p", b"up")
    client.ask(wire.STDIN, raw("p") + raw("\x03"))
    assert client.wait("p").exit_code == 4


def test_closing_the_input_of_a_terminal_is_its_end_of_file(client: Client) -> None:
    client.shell("p", "cat > /dev/null; echo done", **TERMINAL)
    client.ask(wire.CLOSE_STDIN, raw("p"))
    client.wait("p")
    assert client.everything("p").endswith(b"done\r\n")


def test_a_large_screen_of_output_is_complete(client: Client) -> None:
    _, out, _ = client.run("p", "seq 1 50000", **TERMINAL)
    assert out == b"".join(b"%d\r\n" % n for n in range(1, 50001))


def test_a_terminal_hangs_up_when_its_leader_ends(client: Client) -> None:
    client.shell("p", "trap 'echo hup > /dev/null' HUP; sleep 1000 & echo up; exec sleep 1000", **TERMINAL)
    client.until("p", b"up")
    client.ask(wire.SIGNAL, raw("p") + signal.SIGKILL.to_bytes(4, "little"))
    assert client.wait("p").status == wire.KILLED


def test_a_shell_on_a_terminal_has_job_control(client: Client) -> None:
    client.spawn("p", ["bash", "--norc", "-i"], env=[r"PS1=[\#]> "], **TERMINAL)
    client.until("p", b"[1]> ")
    client.ask(wire.STDIN, raw("p") + raw("sh -c 'echo in fr''ont; exec sleep 1000'\n"))
    client.until("p", b"in front")
    client.ask(wire.STDIN, raw("p") + raw("\x1a"))
    assert b"Stopped" in client.until("p", b"[2]> ")
    client.ask(wire.STDIN, raw("p") + raw("disown -a; exit 5\n"))
    assert client.wait("p").exit_code == 5
    assert b"no job control" not in client.everything("p")
