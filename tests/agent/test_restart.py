"""After the agent: what it had written down is there again, and what was running is lost."""

from __future__ import annotations

import os
import signal

from tests.agent import client as wire
from tests.agent.client import Client
from tests.agent.conftest import Running


def restarted(agent: Running) -> Client:
    agent.kill()
    agent.start()
    return agent.connect()


def test_records_output_and_exit_codes_are_found_again(agent: Running) -> None:
    before = agent.connect()
    before.run("done", "echo out; echo err >&2; exit 7", label="a label")
    before.run("big", "seq -f %07.0f 1 100000", spool=1 << 18)
    old = before.processes()
    held = before.output("big")
    after = restarted(agent)
    assert after.processes() == old
    assert (after.everything("done"), after.everything("done", wire.STDERR)) == (b"out\n", b"err\n")
    assert after.output("big") == held
    assert after.wait("done").exit_code == 7


def test_what_was_running_is_lost_and_its_output_kept(agent: Running) -> None:
    before = agent.connect()
    running = before.shell("p", "echo so far; exec sleep 1000")
    before.until("p", b"so far")
    after = restarted(agent)
    lost = after.process("p")
    assert (lost.status, lost.exit_code, lost.stdout_size) == (wire.LOST, -1, 7)
    assert lost.ended_us >= running.started_us
    assert after.followed(after.follow("p"))[0] == [(wire.STDOUT, 0, b"so far\n")]
    os.killpg(running.pid, signal.SIGKILL)
    assert restarted(agent).process("p") == lost


def test_an_id_used_before_is_used_after(agent: Running) -> None:
    agent.connect().run("p", "echo first")
    after = restarted(agent)
    assert after.spawn("p", ["/bin/echo", "second"]).status == wire.COMPLETED
    assert after.everything("p") == b"first\n"


def test_new_processes_come_after_old_ones(agent: Running) -> None:
    agent.connect().run("old", "echo old")
    after = restarted(agent)
    after.run("new", "echo new")
    assert [process.process_id for process in after.processes()] == ["old", "new"]
    assert after.everything("old") == b"old\n"


def test_rubbish_in_the_state_directory_is_no_reason_to_fail(agent: Running) -> None:
    agent.connect().run("p", "echo fine")
    for name, data in (
        ("7.r", b""), ("8.r", b"PDR1" + b"\xff" * 100), ("9.r", os.urandom(5000)), ("1.o.99", b"x"),
        ("55.o.0", b"orphan"), ("x", b"unknown"), ("1.o.", b""), ("99999999999999999999999.r", b""), ("1.r.new", b""),
    ):  # fmt: skip
        (agent.state / name).write_bytes(data)
    (agent.state / "2.r").mkdir()
    after = restarted(agent)
    assert [process.process_id for process in after.processes()] == ["p"]
    assert after.output("p", limit=5) == (0, b"fine\n")
    assert after.run("q", "echo on")[1] == b"on\n"
    assert not (agent.state / "55.o.0").exists()
