"""A terminal through both clients, against the real server over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.client import AnswerLost, SandboxClient, ServerUnreachable, SyncSandboxClient
from paddock.client.terminal import TerminalProgress
from tests.client.server import RunningServer, free_port, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def box(server: RunningServer) -> Iterator[str]:
    with SyncSandboxClient(server.url, api_key=server.key) as made:
        sandbox_id = made.create_sandbox("alice").sandbox_id
        yield sandbox_id
        made.delete_sandbox(sandbox_id)


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as made:
        yield made


async def test_a_program_is_typed_to_resized_and_ends_with_its_exit_code(server: RunningServer, box: str) -> None:
    command = "read line; stty size; echo got:$line; exit 3"
    async with (
        SandboxClient(server.url, api_key=server.key) as twin,
        twin.terminal(box, command, rows=40, cols=100) as terminal,
    ):
        assert terminal.process_id
        assert (terminal.status, terminal.exit_code) == ("running", None)
        await terminal.resize(50, 120)
        await terminal.write("hello\n")
        output = b"".join([data async for data in terminal])
    assert b"50 120" in output
    assert b"got:hello" in output
    assert (terminal.status, terminal.exit_code, terminal.skipped) == ("completed", 3, 0)
    assert terminal.offset == len(output)


def test_the_sync_twin_does_the_same(client: SyncSandboxClient, box: str) -> None:
    with client.terminal(box, "read line; stty size; echo got:$line; exit 3", rows=40, cols=100) as terminal:
        terminal.resize(50, 120)
        terminal.write(b"hello\n")
        output = b"".join(terminal)
    assert b"50 120" in output
    assert b"got:hello" in output
    assert (terminal.status, terminal.exit_code) == ("completed", 3)


def test_one_that_was_left_runs_on_and_is_found_again_where_it_was(client: SyncSandboxClient, box: str) -> None:
    seen = b""
    with client.terminal(box, "echo first; read line; echo second:$line") as terminal:
        for data in terminal:
            seen += data
            if b"first" in seen:
                break
    assert client.get_process(box, terminal.process_id).status == "running"
    with client.terminal(box, process_id=terminal.process_id, offset=terminal.offset) as again:
        assert again.process_id == terminal.process_id
        again.write("word\n")
        rest = b"".join(again)
    assert b"first" not in rest
    assert b"second:word" in rest
    assert again.exit_code == 0


def test_a_signal_reaches_the_program(client: SyncSandboxClient, box: str) -> None:
    with client.terminal(box, "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done") as terminal:
        seen = b""
        for data in terminal:
            seen += data
            if b"ready" in seen and b"caught" not in seen:
                terminal.send_signal("SIGTERM")
    assert b"caught" in seen
    assert terminal.exit_code == 7


async def test_what_cannot_be_opened_is_a_typed_error(server: RunningServer, box: str) -> None:
    async with SandboxClient(server.url, api_key=server.key) as twin:
        with pytest.raises(errors.SandboxNotFound):
            async with twin.terminal("alice_00000000"):
                pass
        with pytest.raises(errors.Invalid):
            async with twin.terminal(box, rows=5000):
                pass
    stranger = SyncSandboxClient(server.url, api_key="e2b_" + "0" * 40)
    nobody = SyncSandboxClient(f"http://127.0.0.1:{free_port()}", api_key=server.key)
    with stranger, pytest.raises(errors.Unauthorized), stranger.terminal(box):
        pass
    with nobody, pytest.raises(ServerUnreachable), nobody.terminal(box):
        pass


def test_a_server_that_stops_is_a_lost_answer_and_not_an_end(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        client = SyncSandboxClient(server.url, api_key=server.key)
        box = client.create_sandbox("alice").sandbox_id
        opened = client.terminal(box, "echo up; exec sleep 600")
        terminal = opened.__enter__()
        output = iter(terminal)
        assert next(output)
    with pytest.raises(AnswerLost, match=terminal.process_id):
        list(output)
    assert terminal.exit_code is None
    terminal.__exit__()
    with running_server(tmp_path / "home") as server, SyncSandboxClient(server.url, api_key=server.key) as after:
        after.delete_sandbox(box)
    client.close()


def test_bytes_that_are_gone_are_counted() -> None:
    progress = TerminalProgress()
    assert progress.take(b"ab") == b"ab"
    assert progress.take('{"type": "gap", "offset": 10, "skipped": 8}') == b""
    assert progress.take(b"cd") == b"cd"
    assert (progress.offset, progress.skipped) == (12, 8)
