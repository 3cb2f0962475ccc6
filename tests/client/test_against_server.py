"""Every method of both clients against the real server, over a real socket."""

from __future__ import annotations

import inspect
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import errors
from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.client import Output, SandboxClient, SyncSandboxClient
from paddock.settings import Settings
from tests.addons.packed import VERSION, pack_vscode
from tests.client.server import RunningServer, running_server
from tests.support import local_home
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """It has no kernel of their own to give to sandboxes, whatever is installed here."""
    with running_server(tmp_path_factory.mktemp("home"), PADDOCK_RUNSC="/not/there") as running:
        yield running


class Driver:
    """One way to call both twins: what is plain on the one is awaited on the other. The server has its own thread."""

    def __init__(self, client: SandboxClient | SyncSandboxClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if isinstance(result, Iterator):
                return _as_async(result)
            return result if inspect.isawaitable(result) or hasattr(result, "__aiter__") else _settled(result)

        return call


async def _settled(value: Any) -> Any:
    return value


async def _as_async(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


@pytest.fixture(params=["async", "sync"])
async def client(request: pytest.FixtureRequest, server: RunningServer) -> AsyncIterator[Driver]:
    if request.param == "async":
        async with SandboxClient(server.url, api_key=server.key) as made:
            yield Driver(made)
    else:
        with SyncSandboxClient(server.url, api_key=server.key) as made_sync:
            yield Driver(made_sync)


@pytest.fixture
async def box(client: Driver) -> AsyncIterator[str]:
    sandbox_id: str = (await client.create_sandbox("alice")).sandbox_id
    yield sandbox_id
    await client.delete_sandbox(sandbox_id)


async def test_a_sandbox_lives_and_dies(client: Driver) -> None:
    box = await client.create_sandbox(
        "alice",
        timeout=600,
        max_lifetime=7200,
        on_timeout="delete",
        env={"GREETING": "hello"},
        metadata={"chat": "42"},
        resources={"cpu": 0.5, "memory_mb": 64},
        egress={"mode": "proxy", "deny": ["bad.test"]},
    )
    name = box["sandbox_id"]
    assert box.status == "running"
    assert (box.on_timeout, box.timeout, box.metadata, box.resources.memory_mb) == ("delete", 600, {"chat": "42"}, 64)
    assert (await client.pause_sandbox(name)).status == "paused"
    assert (await client.get_status(name)).status == "paused"
    assert (await client.resume_sandbox(name)).status == "running"
    assert (await client.connect_sandbox(name, timeout=900)).timeout == 900
    changed = await client.schedule_timeout(name, 1200, "pause")
    assert (changed.timeout, changed.expires_action) == (1200, "pause")
    assert (await client.run_command(name, "echo $GREETING")).stdout == "hello\n"
    assert name in [found.sandbox_id for found in (await client.list_sandboxes("alice", "running")).sandboxes]
    assert name in [found.sandbox_id async for found in client.iter_sandboxes("alice", limit=1)]
    assert (await client.expose_port(name, 3000)).startswith(f"http://3000-{box.key}.")
    urls = await client.get_port_urls(name, 3000)
    assert str(urls).startswith(f"http://3000-{box.key}.") and f"/p/{box.key}/3000/" in str(urls.program_url)
    assert (await client.delete_sandbox(name))["success"] is True
    assert (await client.get_status(name)).status == "deleted"


async def test_a_create_can_carry_its_first_command(client: Driver) -> None:
    box = await client.create_sandbox("alice", command="echo hi; exit 4", command_timeout=60)
    assert (box.command.stdout, box["command"]["exit_code"]) == ("hi\n", 4)
    plain = await client.create_sandbox("alice")
    assert plain.command is None
    for made in (box, plain):
        await client.delete_sandbox(made.sandbox_id)


async def test_the_same_idempotency_key_makes_one_sandbox(client: Driver) -> None:
    first = await client.create_sandbox("alice", idempotency_key=f"once-{id(client)}")
    again = await client.create_sandbox("alice", idempotency_key=f"once-{id(client)}")
    assert again.sandbox_id == first.sandbox_id
    await client.delete_sandbox(first.sandbox_id)


async def test_where_a_sandbox_may_connect_to_is_seen_and_changed(client: Driver, box: str) -> None:
    assert (await client.get_egress(box)).mode == "proxy"
    changed = await client.set_egress(box, allow=["example.org", "*.test:443"])
    assert (changed.allow, changed["deny"], changed.totals.connections) == (["example.org", "*.test:443"], [], 0)
    assert (await client.set_egress(box, deny=["bad.test"])).allow == ["example.org", "*.test:443"]
    assert (await client.set_egress(box, allow=[])).allow == []
    with pytest.raises(errors.Conflict, match="keeps it"):
        await client.set_egress(box, mode="none")


async def test_what_the_provider_cannot_do_is_said_as_such(client: Driver, box: str) -> None:
    report = await client.get_isolation(box)
    assert "system call filter" in [layer.name for layer in report.layers if layer.active]
    for wish in ({"isolation": "hardened"}, {"mounts": [{"source": "/not/there", "target": "/workspace"}]}):
        with pytest.raises(errors.Unsupported):
            await client.create_sandbox("alice", **wish)


async def test_commands_run(client: Driver, box: str) -> None:
    result = await client.run_command(box, "echo out; echo err >&2; pwd; exit 3", cwd="/tmp", env={"A": "1"})
    assert (result.exit_code, result["stdout"], result.stderr) == (3, "out\n/tmp\n", "err\n")
    slow = await client.run_command(box, "sleep 30", timeout=0.1, hard_timeout=60)
    assert (slow.status, slow.exit_code) == ("running", None)
    await client.send_signal(box, slow.process_id, "SIGKILL")
    assert (await client.wait_process(box, slow.process_id, timeout=PATIENCE_S)).exit_code == 137
    background = await client.run_command(box, "sleep 0.1; echo done", True)
    assert (await client.wait_process(box, background.process_id, timeout=PATIENCE_S)).status == "completed"


async def test_a_command_is_followed(client: Driver, box: str) -> None:
    events = [event async for event in client.stream_command(box, "echo a; echo b >&2; exit 4", timeout=PATIENCE_S)]
    assert events[0].type == "started"
    assert events[-1].type == "exit"
    assert events[-1].exit_code == 4
    spoken = {
        name: b"".join(e.raw for e in events if isinstance(e, Output) and e.stream == name)
        for name in ("stdout", "stderr")
    }
    assert spoken == {"stdout": b"a\n", "stderr": b"b\n"}


async def test_processes(client: Driver, box: str) -> None:
    process = await client.start_process(box, argv=["cat"], stdin=True)
    assert process.process_id in [found.process_id for found in await client.list_processes(box)]
    await client.write_stdin(box, process.process_id, "text\n")
    await client.write_stdin(box, process.process_id, b"\xff\n", close=True)
    assert (await client.wait_process(box, process.process_id, timeout=PATIENCE_S)).exit_code == 0
    assert (await client.get_process(box, process.process_id))["stdout_size"] == 7
    output = await client.read_output(box, process.process_id, stdout_offset=5, wait=1, limit=100)
    assert (output.raw_stdout, output.stdout_offset, output.eof) == (b"\xff\n", 7, True)
    followed = [event async for event in client.stream_process(box, process.process_id, stdout_offset=2)]
    assert b"".join(event.raw for event in followed[:-1]) == b"xt\n\xff\n"


async def test_files(client: Driver, box: str, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"from a path")
    assert (await client.write_file(box, "/workspace/text", "grüße\n")).file.size == 8
    await client.write_file(box, "/workspace/empty", "")
    await client.write_file(box, "/workspace/large", "x" * 2_000_000)
    await client.write_file(box, "/workspace/script", "#!/bin/sh\necho ran", mode=0o755)
    await client.write_file(box, "/workspace/bytes", bytes(range(256)))
    await client.write_file(box, "/workspace/object", io.BytesIO(b"from an object"))
    await client.upload(box, "/workspace/path", local)
    await client.upload(box, "/workspace/iterator", iter([b"from ", b"an ", b"iterator"]))
    assert await client.read_file(box, "/workspace/text") == "grüße\n"
    assert await client.read_file(box, "/workspace/empty") == ""
    assert await client.read_bytes(box, "/workspace/bytes") == bytes(range(256))
    assert await client.read_bytes(box, "/workspace/object") == b"from an object"
    assert await client.read_bytes(box, "/workspace/path") == b"from a path"
    assert await client.read_bytes(box, "/workspace/iterator") == b"from an iterator"
    assert sum([len(chunk) async for chunk in client.download(box, "/workspace/large")]) == 2_000_000
    assert b"".join([chunk async for chunk in client.download(box, "/workspace/path", offset=5)]) == b"a path"
    assert [chunk async for chunk in client.download(box, "/workspace/empty")] == []
    assert (await client.run_command(box, "./script")).stdout == "ran\n"
    assert (await client.stat_file(box, "/workspace/script")).mode == "0755"
    assert (await client.make_directory(box, "/workspace/a/b")).type == "directory"
    assert (await client.move_file(box, "/workspace/path", "/workspace/a/b/moved")).path == "/workspace/a/b/moved"
    assert [entry.name for entry in await client.list_files(box, "/workspace/a", depth=2)] == ["b", "moved"]
    assert (await client.delete_file(box, "/workspace/a", recursive=True)).success
    with pytest.raises(errors.PathNotFound):
        await client.read_file(box, "/workspace/a/b/moved")
    with pytest.raises(errors.Invalid, match="not UTF-8"):
        await client.read_file(box, "/workspace/bytes")


async def test_a_directory_is_watched(client: Driver, box: str) -> None:
    # The change comes from inside, again and again, because the watch begins only when it is first asked.
    toucher = await client.start_process(box, "while true; do date > /workspace/touched; sleep 0.05; done")
    change = await anext(client.watch_files(box, recursive=True))
    await client.send_signal(box, toucher.process_id, "SIGKILL")
    assert change.path.startswith("/workspace/touched")
    assert change["change"] in ("created", "modified")


async def test_what_happened_is_told(client: Driver, box: str) -> None:
    await client.run_command(box, "true")
    page = await client.events(box, limit=2)
    assert [event.seq for event in page.events] == [1, 2]
    assert (await client.events(box, after=page.next_after)).events[0].seq == 3
    await client.delete_sandbox(box)
    seen = [event.type async for event in client.stream_events(box, after=0)]
    assert seen[-1] == "sandbox.deleted"
    assert "sandbox.running" in seen


async def test_what_was_used_is_counted(client: Driver, box: str) -> None:
    await client.run_command(box, "true")
    assert (await client.metrics(box)).memory_total > 0
    assert (await client.get_sandbox_usage(box)).total.commands >= 1
    used = await client.get_usage(since="2000-01-01", until="2999-12-31")
    assert used["total"]["commands"] >= 1


async def test_code_remembers_what_it_defined(client: Driver, box: str) -> None:
    assert (await client.run_code(box, "x = 20")).error is None
    result = await client.run_code(box, "print('out'); x + 1")
    assert (result.text, result.stdout) == ("21", "out\n")
    seen = [event async for event in client.stream_code(box, "1 / 0")]
    assert [type(event).__name__ for event in seen] == ["CodeStarted", "CodeRaised", "CodeEnded"]
    own = await client.create_code_context(box, "python", cwd="/tmp")
    assert (await client.run_code(box, "import os; os.getcwd()", context_id=own.context_id)).text == "/tmp"
    assert own.context_id in [found.context_id for found in await client.list_code_contexts(box)]
    await client.run_code(box, "y = 1", context_id=own.context_id)
    assert (await client.restart_code_context(box, own.context_id)).success
    forgotten = await client.run_code(box, "y", context_id=own.context_id)
    assert forgotten.error.name == "NameError"
    assert (await client.delete_code_context(box, own.context_id)).success


async def test_what_sandboxes_can_be_made_from_is_listed(client: Driver) -> None:
    assert [(found.provider, found.default) for found in await client.list_templates()][:1] == [("local", True)]


async def test_an_addon_is_installed_and_removed(
    client: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_vscode(tmp_path, monkeypatch)
    assert not (await client.get_addon("vscode")).installed
    assert (await client.install_addon("vscode")).name == "vscode"
    joined = [event async for event in client.stream_install_addon("vscode")]
    assert (type(joined[-1]).__name__, joined[-1].version) == ("AddonEnded", VERSION)
    assert [each.name for each in await client.list_addons() if each.installed] == ["vscode"]
    assert (await client.remove_addon("vscode")).success
    with pytest.raises(errors.AddonNotFound):
        await client.remove_addon("vscode")


async def test_tools_are_listed_and_called(client: Driver, box: str) -> None:
    [found] = [each for each in await client.list_tools(box) if each.name == "write_file"]
    assert (found.langchain_name, found.read_only, found.input_schema["required"]) == (
        "file_write",
        False,
        ["path", "content"],
    )
    written = await client.call_tool(box, "write_file", {"path": "a.txt", "content": "one\n"})
    assert (written.failed, written.data) == (False, {"path": "/workspace/a.txt", "size": 4})
    read = await client.call_tool(box, "file_read", {"path": "a.txt"}, timeout=60)
    assert (read.text, read.pictures) == ("     1\tone", [])
    missing = await client.call_tool(box, "read_file", {"path": "none"})
    assert (missing.failed, missing.data) == (True, None)
    with pytest.raises(errors.Invalid, match="path"):
        await client.call_tool(box, "read_file")
    with pytest.raises(errors.ToolNotFound):
        await client.call_tool(box, "nonsense")


async def test_ports_are_opened_for_others(client: Driver, box: str) -> None:
    link = await client.create_link(box, 3000, ttl=60)
    assert (link.port, "paddock_link=" in link.url) == (3000, True)
    ticket = await client.create_ticket(box, 3000)
    assert ticket.ticket in ticket.url
    assert (await client.create_ticket(box)).url is None


async def test_an_mcp_server_is_registered_and_removed(client: Driver, box: str) -> None:
    made = await client.put_mcp_server(box, "off", {"command": "true", "env": {"KEY": "secret"}, "disabled": True})
    assert made.name == "off" and made.env == {"KEY": "***"}
    assert (await client.get_mcp_server(box, "off")).status == "disabled"
    document = {"mcpServers": {"other": {"command": "true", "disabled": True}}}
    assert [each.name for each in await client.put_mcp_servers(box, document)] == ["off", "other"]
    assert (await client.delete_mcp_server(box, "off")).success
    assert [each.name for each in await client.list_mcp_servers(box)] == ["other"]
    assert (await client.delete_mcp_servers(box)).success
    assert await client.list_mcp_servers(box) == []


async def test_a_service_is_registered_and_removed(client: Driver, box: str) -> None:
    command = "python3 -m http.server 8000"
    made = await client.put_service(box, "web", 8000, command, ready_path="/", ready_timeout=PATIENCE_S)
    assert (made.name, made.port, made.running) == ("web", 8000, False)
    assert (await client.get_service(box, "web")).command == command
    assert [found.name for found in await client.list_services(box)] == ["web"]
    assert (await client.delete_service(box, "web")).success
    assert await client.list_services(box) == []


async def test_keys_and_users(client: Driver, server: RunningServer) -> None:
    name = f"bob-{id(client)}"
    user = await client.create_user(name, role="member", quota={"max_live": 3})
    assert (user.quota.max_live, user.role) == (3, "member")
    made = await client.create_key("laptop", user_id=name)
    async with SandboxClient(server.url, api_key=made.key) as bob:
        assert (await bob.me()).user_id == name
        with pytest.raises(errors.Forbidden):
            await bob.list_users()
    assert made.key_id in [key.key_id for key in await client.list_keys()]
    assert name in [found.user_id for found in await client.list_users()]
    assert (await client.change_user(name, disabled=True)).disabled
    assert (await client.get_user(name))["disabled"] is True
    assert (await client.revoke_key(made.key_id)).success
    with pytest.raises(errors.KeyNotFound):
        await client.revoke_key(made.key_id)
    assert (await client.me()).role == "admin"


async def test_errors_have_their_types(client: Driver, server: RunningServer) -> None:
    assert (await client.health()).status == "ok"
    with pytest.raises(errors.SandboxNotFound) as caught:
        await client.get_status("nobody_00000000")
    assert caught.value.request_id
    with pytest.raises(errors.Invalid):
        await client.create_sandbox("not/safe")
    with SyncSandboxClient(server.url, api_key="e2b_wrong") as stranger, pytest.raises(errors.Unauthorized):
        stranger.me()
    with SyncSandboxClient(server.url) as keyless, pytest.raises(errors.Unauthorized, match="PADDOCK_API_KEY"):
        keyless.me()


async def test_a_client_can_live_in_the_servers_own_process(tmp_path: Path) -> None:
    local_home.lay_out(tmp_path)
    settings = Settings(PADDOCK_HOME=tmp_path, SANDBOX_PROVIDER="local", PADDOCK_POOL_SIZE=0, _env_file=None)
    key = (await first_key(settings)).key
    app = create_app(settings)
    async with (
        app.router.lifespan_context(app),
        SandboxClient("http://paddock.test", api_key=key, transport=httpx.ASGITransport(app)) as client,
    ):
        box = await client.create_sandbox("alice")
        assert (await client.run_command(box.sandbox_id, "echo hi")).output == "hi\n"
        await client.delete_sandbox(box.sandbox_id)


def test_every_method_is_driven_by_a_test() -> None:
    beside = [Path(__file__).parents[1] / name for name in ("addons/test_api.py", "older_servers/test_clients.py")]
    here = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__), *beside))
    methods = [name for name in dir(SandboxClient) if not name.startswith("_")]
    elsewhere = ("close", "server_url", "terminal")  # test_terminal.py
    assert [name for name in methods if f".{name}(" not in here and name not in elsewhere] == []
