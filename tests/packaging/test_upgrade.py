"""A home with live and paused sandboxes, made by the previous release, under this one: nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from paddock.models import CommandStatus, State
from tests.e2b.environments import locked
from tests.packaging.installed import Environment, Person, Server, a_server
from tests.packaging.wheels import CACHE, ROOT, Wheels
from tests.support.waiting import wait_until

_FIRST = "df7138ee0979c5ddbae7a4b66dd123a8a8379edb"
"""The last commit with one distribution, until there is a tag of a release."""
_COUNT = "n=0; while :; do n=$((n+1)); echo $n > /workspace/count; sleep 0.1; done"
_REMEMBER = (
    "import sys; held = 'kept in memory'; print('there', flush=True); sys.stdin.readline(); print(held, flush=True)"
)


@pytest.fixture(scope="session")
def previous() -> Path:
    """The wheel of the previous release: a file that is named, else built from its commit."""
    if named := os.environ.get("PADDOCK_TEST_PREVIOUS"):
        return Path(named).resolve()
    commit = _commit()
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "previous.lock"):
        folder = CACHE / f"previous-{commit[:12]}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                tree, made = Path(scratch, "tree"), Path(scratch, "made")
                tree.mkdir()
                packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
                subprocess.run(["tar", "-x", "-C", tree], input=packed, check=True)
                for project in (tree, tree / "client"):
                    if (project / "pyproject.toml").exists():
                        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made]
                        subprocess.run(command, cwd=project, check=True)
                made.rename(folder)
        return folder


def _commit() -> str:
    """Of the latest release before this commit."""
    for words in (["describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^"], ["rev-parse", "--verify", _FIRST]):
        found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            name = f"{found.stdout.strip()}^{{commit}}"
            return subprocess.run(
                ["git", "rev-parse", name], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
    pytest.skip("the commit of the previous release is not in this checkout")


@dataclass(frozen=True, slots=True)
class Before:
    """What there was, and how it is known again."""

    live: str
    counter: str
    paused: str
    holder: str
    overdue: str
    bobs: str
    bobs_key: str
    seen: dict[str, dict[str, Any]]
    events: int


_SEEN = ("user_id", "owner_id", "template_id", "metadata", "timeout", "on_timeout", "created_at", "provider")


def _seen(client: SyncSandboxClient, sandbox_id: str) -> dict[str, Any]:
    answer = dict(client.get_status(sandbox_id))
    return {name: answer.get(name) for name in _SEEN}


def _fill(client: SyncSandboxClient) -> Before:
    live = client.create_sandbox("alice", timeout=3600, env={"GREETING": "hello"}, metadata={"for": "upgrade"})
    client.write_file(live.sandbox_id, "notes.txt", "written before")
    client.put_service(live.sandbox_id, "web", 3000, "python3 -m http.server 3000")
    counter = client.start_process(live.sandbox_id, _COUNT)
    assert client.run_code(live.sandbox_id, "answer = 42; answer").text == "42"
    paused = client.create_sandbox("alice", timeout=7200)
    holder = client.start_process(paused.sandbox_id, argv=["python3", "-c", _REMEMBER], stdin=True)
    assert client.read_output(paused.sandbox_id, holder.process_id, wait=60).raw_stdout == b"there\n"
    client.pause_sandbox(paused.sandbox_id)
    client.create_user("bob")
    key = client.create_key("bobs", user_id="bob").key
    with SyncSandboxClient(client.server_url, api_key=key) as bob:
        bobs = bob.create_sandbox("bob")
    overdue = client.create_sandbox("alice")
    everything = (live.sandbox_id, paused.sandbox_id, bobs.sandbox_id)
    seen = {sandbox_id: _seen(client, sandbox_id) for sandbox_id in everything}
    events = len(client.events(live.sandbox_id).events)
    client.schedule_timeout(overdue.sandbox_id, 1)
    return Before(
        live=live.sandbox_id,
        counter=counter.process_id,
        paused=paused.sandbox_id,
        holder=holder.process_id,
        overdue=overdue.sandbox_id,
        bobs=bobs.sandbox_id,
        bobs_key=key,
        seen=seen,
        events=events,
    )


def _check(client: SyncSandboxClient, before: Before) -> None:
    assert client.get_status(before.live).status is State.RUNNING
    assert client.get_status(before.paused).status is State.PAUSED
    wait_until(lambda: client.get_status(before.overdue).status is State.PAUSED)
    assert {sandbox_id: _seen(client, sandbox_id) for sandbox_id in before.seen} == before.seen
    assert len(client.events(before.live).events) >= before.events > 0

    # The live one: the same process, counting; its variables, files, contexts and services.
    assert client.get_process(before.live, before.counter).status is CommandStatus.RUNNING
    count = int(client.read_file(before.live, "count").strip() or 0)
    wait_until(lambda: int(client.read_file(before.live, "count").strip() or 0) > count)
    assert client.run_command(before.live, "echo $GREETING; cat notes.txt").stdout == "hello\nwritten before"
    assert client.run_code(before.live, "answer + 1").text == "43"
    assert [service.name for service in client.list_services(before.live)] == ["web"]

    # The paused one: the next call wakes it, memory and all.
    client.write_stdin(before.paused, before.holder, "\n")
    client.wait_process(before.paused, before.holder)
    assert client.read_output(before.paused, before.holder).raw_stdout == b"there\nkept in memory\n"

    with SyncSandboxClient(client.server_url, api_key=before.bobs_key) as bob:
        assert bob.me().user_id == "bob"
        assert [each.sandbox_id for each in bob.iter_sandboxes()] == [before.bobs]
        assert bob.run_command(before.bobs, "echo mine").stdout == "mine\n"

    made = client.create_sandbox("alice")
    assert client.run_command(made.sandbox_id, "echo new").stdout == "new\n"
    for sandbox_id in (made.sandbox_id, before.live, before.paused, before.overdue, before.bobs):
        client.delete_sandbox(sandbox_id)
    assert not list(client.iter_sandboxes())


def _client(server: Server) -> SyncSandboxClient:
    return SyncSandboxClient(server.url, api_key=server.key)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)  # installs from an index
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_nothing_is_lost(anybody: Person, wheels: Wheels, previous: Path, end: signal.Signals) -> None:
    old, new = (Path(anybody.home.parent, name) for name in ("old", "new"))
    shutil.copytree(previous, old)
    new.mkdir()
    for wheel in (wheels.client, wheels.server):
        shutil.copy(wheel, new)
    environment = Environment.create(anybody)
    environment.install("--find-links", old, "paddock-sandbox[interpreter]")
    with a_server(anybody, [environment.paddock]) as server:
        with _client(server) as client:
            before = _fill(client)
        server.stop(end)
        anybody.run(environment.python, "-m", "pip", "uninstall", "--yes", "--quiet", "paddock-sandbox")
        environment.install("--find-links", new, "--no-cache-dir", "paddock-sandbox")
        assert "paddock-client" in environment.names()
        server.start()
        with _client(server) as client:
            _check(client, before)
        anybody.run(environment.paddock, "destroy", "--yes")
