"""The same at level ``hardened``: whatever happens in a guest, to its kernel or to the agent in it, it is ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.client import Sandbox, SyncSandboxClient
from paddock.providers.base import IsolationLevel
from tests.e2b.server import PaddockServer
from tests.local import gvisor
from tests.local.test_ending import below, connected, freeze, leave_without_descriptors, running
from tests.support.serving import serving
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_GUESTS_KERNEL = "runsc-sandbox"
Pids = Callable[[PaddockServer, Sandbox], list[int]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    wanted = gvisor.wanted()
    settings = {"PADDOCK_MIN_ISOLATION": "hardened", "PADDOCK_RUNSC": wanted.program}
    with serving(tmp_path_factory.mktemp("paddock") / "home", **settings) as started:
        yield started


@pytest.fixture
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with connected(server) as made:
        yield made


def first_process(server: PaddockServer, sandbox: Sandbox) -> list[int]:
    return [running(server, sandbox).pid]


def kernel(server: PaddockServer, sandbox: Sandbox) -> list[int]:
    """The process that answers the guest's system calls, its agent's among them."""
    pids = below(running(server, sandbox).pid)
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_GUESTS_KERNEL.encode())]


def everything(server: PaddockServer, sandbox: Sandbox) -> list[int]:
    return sorted(below(running(server, sandbox).pid))


def stop(server: PaddockServer, sandbox: Sandbox, of: Pids) -> None:
    for pid in of(server, sandbox):
        os.kill(pid, signal.SIGSTOP)


def kill(server: PaddockServer, sandbox: Sandbox, of: Pids) -> None:
    for pid in of(server, sandbox):
        os.kill(pid, signal.SIGKILL)


def limit(server: PaddockServer, sandbox: Sandbox, of: Pids) -> None:
    for pid in of(server, sandbox):
        leave_without_descriptors(pid)


def freeze_group(server: PaddockServer, sandbox: Sandbox, of: Pids) -> None:
    freeze(server, sandbox)


HARM = {
    "first-stopped": (stop, first_process),
    "kernel-stopped": (stop, kernel),
    "all-stopped": (stop, everything),
    "first-killed": (kill, first_process),
    "kernel-killed": (kill, kernel),
    "first-limited": (limit, first_process),
    "kernel-limited": (limit, kernel),
    "frozen": (freeze_group, everything),
}


@pytest.mark.parametrize("harm", list(HARM))
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_guest_that_does_nothing_any_more_is_ended_all_the_same(
    server: PaddockServer, client: SyncSandboxClient, harm: str, paused: bool
) -> None:
    sandbox = client.create_sandbox(user_id="mallory")
    assert client.get_isolation(sandbox.sandbox_id).level == IsolationLevel.HARDENED.value
    client.run_command(sandbox.sandbox_id, "nohup sleep 1000 >/dev/null 2>&1 &")
    processes = below(running(server, sandbox).pid)
    do, of = HARM[harm]
    assert of(server, sandbox)
    do(server, sandbox, of)
    began = time.monotonic()
    if paused:
        assert client.pause_sandbox(sandbox.sandbox_id).status == "paused"
    client.delete_sandbox(sandbox.sandbox_id)
    assert time.monotonic() - began < PATIENCE_S
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
    with pytest.raises(errors.SandboxNotFound):
        client.run_command(sandbox.sandbox_id, "true")


INSIDE = {
    "signals": "for s in STOP KILL TERM SEGV; do sudo kill -$s 1; done",
    "limits": "for l in nofile nproc as cpu; do sudo prlimit --pid 1 --$l=0:0; done",
    "settings": "echo 1000 | sudo tee /proc/1/oom_score_adj; echo x | sudo tee /proc/1/comm",
    "its-door": "cd /run/paddock; sudo rm -rf door/*; sudo mv door other; sudo umount -l /run/paddock",
    "memory": "python3 -c 'b = bytearray(8 << 30)'",
    "processes": "sudo sh -c 'b() { b | b & }; b'; sleep 5",
}


@pytest.mark.parametrize("attack", list(INSIDE))
def test_nothing_that_its_root_does_inside_keeps_it_from_being_ended(
    server: PaddockServer, client: SyncSandboxClient, attack: str
) -> None:
    sandbox = client.create_sandbox(user_id="mallory", resources={"memory_mb": 256, "pids": 64})
    processes = below(running(server, sandbox).pid)
    client.run_command(sandbox.sandbox_id, f"nohup sh -c '{INSIDE[attack]}' >/dev/null 2>&1 & sleep 2")
    processes |= below(running(server, sandbox).pid)
    client.delete_sandbox(sandbox.sandbox_id)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
