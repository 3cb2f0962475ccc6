"""Usage, and stopping everybody where there is no freezer."""

from __future__ import annotations

import errno
import os
import signal
import struct
import time
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, raw
from tests.support.waiting import wait_until

STATS = struct.Struct("<QQQQI")

BROOD = """
import os, time
for _ in range(400):
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_usage_is_counted(client: Client) -> None:
    cpu, memory, used, total, count = STATS.unpack(client.ask(wire.STATS).payload)
    assert (memory, count) == (0, 0)
    assert 0 < used < total
    script = "x = bytearray(40 << 20); sum(range(3_000_000)); print('up', flush=True); input()"
    client.spawn("p", ["python3", "-c", script], flags=wire.WITH_STDIN)
    client.until("p", b"up")
    busy, memory, _, _, count = STATS.unpack(client.ask(wire.STATS).payload)
    assert 40 << 20 <= memory < 400 << 20
    assert (count, busy > cpu) == (1, True)
    client.ask(wire.CLOSE_STDIN, raw("p"))
    client.wait("p")
    after, memory, _, _, count = STATS.unpack(client.ask(wire.STATS).payload)
    assert (memory, count) == (0, 0)
    assert after >= busy * 0.9


def test_everybody_stops_and_goes_on_but_who_was_stopped_before(client: Client) -> None:
    tree = client.shell("p", "sleep 1000 & sleep 1000 & echo up; while :; do :; done")
    client.until("p", b"up")
    before = client.shell("q", "exec sleep 1000")
    os.kill(before.pid, signal.SIGSTOP)
    wait_until(lambda: state(before.pid) == "T")
    assert struct.unpack("<I", client.ask(wire.STOP_ALL).payload)[0] == 3
    assert state(tree.pid) == "T"
    assert struct.unpack("<I", client.ask(wire.STOP_ALL).payload)[0] == 3
    assert struct.unpack("<I", client.ask(wire.CONTINUE_ALL).payload)[0] == 3
    assert (state(tree.pid), state(before.pid)) == ("R", "T")
    assert struct.unpack("<I", client.ask(wire.CONTINUE_ALL).payload)[0] == 0
    assert client.process("p").status == client.process("q").status == wire.RUNNING


def test_without_a_namespace_nobody_is_killed(client: Client) -> None:
    """There everybody would be every process of this user."""
    client.shell("p", "exec sleep 1000")
    with pytest.raises(wire.Refused) as refused:
        client.ask(wire.KILL_ALL)
    assert refused.value.errno == errno.ENOSYS
    assert client.process("p").status == wire.RUNNING


def test_a_brood_of_forks_is_stopped_too(client: Client) -> None:
    client.spawn("p", ["python3", "-c", BROOD])
    client.ask(wire.STOP_ALL)
    count = STATS.unpack(client.ask(wire.STATS).payload)[4]
    time.sleep(0.05)
    assert STATS.unpack(client.ask(wire.STATS).payload)[4] == count
    client.ask(wire.CONTINUE_ALL)
    assert client.wait("p").exit_code == 0
