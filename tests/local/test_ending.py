"""Nothing that happens in a sandbox, or to its agent, keeps a client from ending it: through the API of a real server,
as root or as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import errors
from paddock.client import Sandbox, SyncSandboxClient
from paddock.providers.base import CRASHED
from paddock.providers.common.record import RunningProcess, SandboxRecord
from tests.e2b.server import PaddockServer
from tests.local.place import Place, as_root
from tests.support.serving import serving
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.timeout(900)

_ANSWER_TIMEOUT_S = 240.0
"""For one answer of the server, also on a machine that is very busy. None of them depends on the agent's."""
KERNEL_TELLS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
"""How a process ended that is no child of ours and that somebody has waited for."""
PROGRAM = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
class Limit(ctypes.Structure):
    _fields_ = [("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong)]
print(libc.prlimit(1, resource.RLIMIT_NOFILE, ctypes.byref(Limit(0, 0)), None), ctypes.get_errno())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    with serving(tmp_path_factory.mktemp("paddock") / "home") as running:
        yield running


def connected(server: PaddockServer) -> SyncSandboxClient:
    return SyncSandboxClient(server.url, api_key=server.key, timeout=_ANSWER_TIMEOUT_S)


@pytest.fixture
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with connected(server) as made:
        yield made


def running(server: PaddockServer, sandbox: Sandbox) -> RunningProcess:
    record = SandboxRecord.load(server.home / "local" / "sandboxes" / sandbox.sandbox_id)
    assert record is not None and record.running is not None
    return record.running


def below(first: int) -> set[int]:
    """The process and all that descend from it, as the host numbers them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def wait_for_end(pids: set[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_limits_that_are_taken_from_the_agent_are_refused_and_it_goes_on(
    server: PaddockServer, client: SyncSandboxClient
) -> None:
    """The attack as it was found: an agent without descriptors could not pause, and nothing could end it."""
    for user in ("user", "root"):
        sandbox = client.create_sandbox(user_id="mallory")
        client.write_file(sandbox.sandbox_id, "/workspace/attack.py", PROGRAM.encode())
        sudo = "sudo " if user == "root" else ""
        tried = client.run_command(sandbox.sandbox_id, f"{sudo}python3 /workspace/attack.py")
        assert tried.stdout.split() == ["-1", "1"], "EPERM"
        client.run_command(sandbox.sandbox_id, "nohup sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        processes = below(running(server, sandbox).pid)
        assert client.pause_sandbox(sandbox.sandbox_id).status == "paused"
        client.delete_sandbox(sandbox.sandbox_id)
        wait_for_end(processes)


def stop_agent(server: PaddockServer, sandbox: Sandbox) -> None:
    os.kill(running(server, sandbox).pid, signal.SIGSTOP)


def kill_agent(server: PaddockServer, sandbox: Sandbox) -> None:
    os.kill(running(server, sandbox).pid, signal.SIGKILL)


def limit_agent(server: PaddockServer, sandbox: Sandbox) -> None:
    leave_without_descriptors(running(server, sandbox).pid)


def leave_without_descriptors(pid: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
    except PermissionError:  # a root without CAP_SYS_RESOURCE has it in the user namespace of the sandbox
        words = ("nsenter", "--user", f"--target={pid}", "prlimit", f"--pid={pid}", "--nofile=0:0")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"limits of others cannot be set here: {done.stderr}")
    assert "Max open files            0                    0" in Path(f"/proc/{pid}/limits").read_text()


def freeze(server: PaddockServer, sandbox: Sandbox) -> None:
    group = running(server, sandbox).group
    if group is None:
        pytest.skip("no freezer here")
    group.freeze()


HARM = {"stopped": stop_agent, "killed": kill_agent, "limited": limit_agent, "frozen": freeze}


@pytest.mark.parametrize("harm", list(HARM))
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_an_agent_that_does_nothing_any_more_is_ended_all_the_same(
    server: PaddockServer, client: SyncSandboxClient, harm: str, paused: bool
) -> None:
    sandbox = client.create_sandbox(user_id="mallory")
    client.run_command(sandbox.sandbox_id, "nohup sleep 1000 >/dev/null 2>&1 &")
    processes = below(running(server, sandbox).pid)
    HARM[harm](server, sandbox)
    if harm != "killed":  # which is told at once
        assert client.get_status(sandbox.sandbox_id).status == "running"
    if paused:
        assert client.pause_sandbox(sandbox.sandbox_id).status == "paused"
    client.delete_sandbox(sandbox.sandbox_id)
    wait_for_end(processes)
    with pytest.raises(errors.SandboxNotFound):
        client.run_command(sandbox.sandbox_id, "true")


def test_an_agent_that_does_not_answer_is_told_of(server: PaddockServer, client: SyncSandboxClient) -> None:
    sandbox = client.create_sandbox(user_id="mallory")
    stop_agent(server, sandbox)
    wait_until(lambda: "does not answer" in (client.get_status(sandbox.sandbox_id).reason or ""))
    os.kill(running(server, sandbox).pid, signal.SIGCONT)
    wait_until(lambda: client.get_status(sandbox.sandbox_id).reason is None)
    client.delete_sandbox(sandbox.sandbox_id)


def test_an_agent_that_was_killed_is_told_of_at_once_and_the_next_use_starts_it_again(tmp_path: Path) -> None:
    """Not when rows are compared with the provider, which is never, here."""
    with serving(tmp_path / "home", PADDOCK_RECONCILE_INTERVAL="100000") as server, connected(server) as client:
        sandbox_id = (sandbox := client.create_sandbox(user_id="alice")).sandbox_id
        client.write_file(sandbox_id, "/workspace/kept", b"work")
        kill_agent(server, sandbox)
        wait_for(client, sandbox_id, "paused")
        said = "was killed by SIGKILL. Its files are kept; the next use starts it again."
        assert said in (client.get_status(sandbox_id).reason or "") or not KERNEL_TELLS
        assert crashes(server, sandbox_id) == ["killed"]
        assert client.run_command(sandbox_id, "cat /workspace/kept").stdout == "work"
        assert client.get_status(sandbox_id).status == "running"


@as_root
def test_why_an_agent_ended_is_told(tmp_path: Path) -> None:
    """Out of memory: the kernel's choice, which is the agent where its score says so. Crashed: a fault of its own. And
    killed, where the kernel had killed somebody else for want of memory before."""
    with serving(tmp_path / "home", PADDOCK_RECONCILE_INTERVAL="100000") as server, connected(server) as client:
        sandbox_id = (sandbox := client.create_sandbox(user_id="alice", resources={"memory_mb": 128})).sandbox_id
        hog = "python3 -c 'held = bytearray(400 << 20)'"
        half = "python3 -c 'held = bytearray(80 << 20); import time; time.sleep(1000)'"
        client.start_process(sandbox_id, f"until [ -e go ]; do sleep 0.05; done; {half} & {half}")
        agent = running(server, sandbox).pid
        for pid in below(agent):
            with suppress(FileNotFoundError):  # a sleep that is over
                Path(f"/proc/{pid}/oom_score_adj").write_text("1000" if pid == agent else "0")
        client.write_file(sandbox_id, "/workspace/go", b"")
        wait_for(client, sandbox_id, "paused")
        assert crashes(server, sandbox_id) == ["out_of_memory"]
        assert "want of memory" in (client.get_status(sandbox_id).reason or "")

        assert client.run_command(sandbox_id, hog).exit_code == 137, "this time it is the one that wants so much"
        spoil_agent(server, sandbox)
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while len(told := crashes(server, sandbox_id)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert told[1] == "crashed" or not KERNEL_TELLS

        assert client.run_command(sandbox_id, hog).exit_code == 137
        server.restart()  # which counts anew what is of interest
        wait_for(client, sandbox_id, "running")
        assert client.run_command(sandbox_id, "echo here").stdout == "here\n"
        kill_agent(server, sandbox)
        wait_for(client, sandbox_id, "paused")
        assert crashes(server, sandbox_id)[2:] == ["killed"]
        assert "memory" not in (client.get_status(sandbox_id).reason or "")


@as_root
async def test_a_process_that_lacked_memory_some_time_ago_is_not_why_an_agent_ended(place: Place) -> None:
    inside = await place.create()
    told: list[Mapping[str, Any]] = []

    async def hear(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        if kind == CRASHED:
            told.append(data)

    place.provider.tell(hear)
    assert (await inside.run("python3 -c 'held = bytearray(400 << 20)'")).code == 137
    handle = place.provider._registry.get(inside.sandbox_id)
    assert handle is not None
    for _ in range(2):  # what is done every two seconds
        handle.count_oom_kills()
    os.kill(handle.running.pid, signal.SIGKILL)
    await until(lambda: told)
    assert told[0]["reason"] == "killed"
    assert told[0]["oom_kills"] == 0


def spoil_agent(server: PaddockServer, sandbox: Sandbox) -> None:
    """Its code is overwritten, and the next use makes it fault."""
    pid = running(server, sandbox).pid
    parts = (line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    places = [part[0].split("-") for part in parts if part[1] == "r-xp" and part[-1].startswith("/")]
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for start, end in places:
            memory.seek(int(start, 16))
            memory.write(bytes(int(end, 16) - int(start, 16)))
    with connected(server) as client, suppress(errors.PaddockError):
        client.run_command(sandbox.sandbox_id, "true")


def crashes(server: PaddockServer, sandbox_id: str) -> list[str]:
    """The reasons, as the events tell them."""
    headers = {"X-API-Key": server.key}
    events = httpx.get(f"{server.url}/sandboxes/{sandbox_id}/events", headers=headers).json()["events"]
    return [event["data"]["reason"] for event in events if event["type"] == "sandbox.crashed"]


def test_a_full_disk_and_every_process_there_can_be(server: PaddockServer, client: SyncSandboxClient) -> None:
    sandbox = client.create_sandbox(user_id="mallory", resources={"pids": 32, "disk_mb": 64})
    fill = "cat /dev/zero > /workspace/full 2>/dev/null; for i in $(seq 64); do sleep 1000 & done"
    client.run_command(sandbox.sandbox_id, f"nohup sh -c '{fill}' >/dev/null 2>&1 &")
    pid = running(server, sandbox).pid
    processes = wait_until(lambda: found if len(found := below(pid)) >= 30 else set())
    assert client.pause_sandbox(sandbox.sandbox_id).status == "paused"
    client.delete_sandbox(sandbox.sandbox_id)
    wait_for_end(processes)


def test_a_silent_agent_is_ended_by_a_server_that_comes_later(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as server, connected(server) as client:
        sandbox, other = [client.create_sandbox(user_id="mallory") for _ in range(2)]
        processes = below(running(server, sandbox).pid)
        stop_agent(server, sandbox)
        server.restart()
        assert client.run_command(other.sandbox_id, "echo here").stdout == "here\n"
        client.delete_sandbox(sandbox.sandbox_id)
        wait_for_end(processes)


def test_a_row_with_thousands_of_tries_stops_nobody_also_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as server, connected(server) as client:
        bad, other = [client.create_sandbox(user_id="mallory").sandbox_id for _ in range(2)]
        with closing(sqlite3.connect(server.home / "paddock.db", timeout=30)) as database, database:
            for sandbox_id, attempts in ((bad, 5000), (other, 0)):
                change = "UPDATE sandboxes SET state='pausing', attempts=?, state_changed_at=0 WHERE sandbox_id=?"
                database.execute(change, (attempts, sandbox_id))
        for _ in range(2):
            wait_for(client, other, "paused")
            server.restart()
        wait_for(client, bad, "paused")
        client.delete_sandbox(bad)
        client.delete_sandbox(other)


def wait_for(client: SyncSandboxClient, sandbox_id: str, status: str) -> None:
    wait_until(lambda: client.get_status(sandbox_id).status == status)
