"""What needs a real connection: server-sent events, WebSockets, uploads that break off."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from paddock.client.sse import EventDecoder, ServerSentEvent
from paddock.settings import Settings
from tests.api.conftest import LiveServer, assert_error, running
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
async def client(live_server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with live_server.client() as client:
        yield client


async def read_events(answer: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    decoder = EventDecoder()
    async for chunk in answer.aiter_bytes():
        for event in decoder.feed(chunk):
            yield event


async def start(client: httpx.AsyncClient, sandbox: str, **fields: Any) -> str:
    answer = await client.post(f"/sandboxes/{sandbox}/processes", json=fields)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["process_id"])


async def test_a_command_streams_its_output(client: httpx.AsyncClient, live_sandbox: str) -> None:
    body = {"sandbox_id": live_sandbox, "command": r"printf 'h\xc3'; sleep 0.3; printf '\xb6i'; exit 4", "stream": True}
    async with client.stream("POST", "/sandboxes/run-command", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event async for event in read_events(answer)]
    assert [event.event for event in events][:2] == ["started", "output"]
    assert "".join(json.loads(event.data)["data"] for event in events[1:-1]) == "höi"
    assert (events[-1].event, events[-1].id, json.loads(events[-1].data)["exit_code"]) == ("exit", "4.0", 4)


async def test_bytes_that_are_not_text_are_also_given_in_base64(client: httpx.AsyncClient, live_sandbox: str) -> None:
    body = {"sandbox_id": live_sandbox, "command": r"printf 'a\xff' >&2"}
    headers = {"Accept": "text/event-stream"}
    async with client.stream("POST", "/sandboxes/run-command", json=body, headers=headers) as answer:
        events = [event async for event in read_events(answer)]
    output = json.loads(events[1].data)
    assert (output["stream"], base64.b64decode(output["data_base64"])) == ("stderr", b"a\xff")


async def test_a_streamed_command_with_a_soft_timeout_ends_the_stream(
    client: httpx.AsyncClient, live_sandbox: str
) -> None:
    body = {"sandbox_id": live_sandbox, "command": "echo on; sleep 60", "stream": True, "timeout": 0.5}
    async with client.stream("POST", "/sandboxes/run-command", json=body) as answer:
        events = [event async for event in read_events(answer)]
    assert json.loads(events[-1].data)["status"] == "running"


async def test_a_follower_that_left_goes_on_where_it_was(client: httpx.AsyncClient, live_sandbox: str) -> None:
    process_id = await start(client, live_sandbox, command="cat", stdin=True)
    path = f"/sandboxes/{live_sandbox}/processes/{process_id}"
    await client.post(f"{path}/stdin", json={"data": "first\n"})
    async with client.stream("GET", f"{path}/stream") as answer:
        first = await anext(read_events(answer))
    assert (first.event, first.id, json.loads(first.data)["data"]) == ("output", "6.0", "first\n")
    await client.post(f"{path}/stdin", json={"data": "second\n", "close": True})
    async with client.stream("GET", f"{path}/stream", headers={"Last-Event-ID": first.id}) as answer:
        events = [event async for event in read_events(answer)]
    assert [event.event for event in events] == ["output", "exit"]
    assert json.loads(events[0].data) == {"stream": "stdout", "offset": 6, "data": "second\n"}


async def test_a_caller_who_leaves_does_not_end_the_command(client: httpx.AsyncClient, live_sandbox: str) -> None:
    path = f"/sandboxes/{live_sandbox}"
    body = {"sandbox_id": live_sandbox, "command": "until [ -e /workspace/go ]; do sleep 0.05; done; exit 3"}
    asking = asyncio.create_task(client.post("/sandboxes/run-command", json=body))

    async def listed() -> list[dict[str, Any]]:
        return list((await client.get(f"{path}/processes")).json()["processes"])

    (process,) = await until(listed)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await client.put(f"{path}/files", params={"path": "/workspace/go"}, content=b"")
    waited = await client.post(f"{path}/processes/{process['process_id']}/wait", params={"timeout": 20})
    assert waited.json()["exit_code"] == 3


async def test_events_stream_until_the_sandbox_is_deleted(client: httpx.AsyncClient, live_server: LiveServer) -> None:
    sandbox = (await client.post("/sandboxes/create", json={"user_id": "alice"})).json()["sandbox_id"]
    async with client.stream("GET", f"/sandboxes/{sandbox}/events/stream") as answer:
        events = read_events(answer)
        seen = [await anext(events)]
        await client.delete(f"/sandboxes/{sandbox}")
        seen += [event async for event in events]
    assert [int(event.id) for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].event == json.loads(seen[-1].data)["type"] == "sandbox.deleted"
    headers = {"Last-Event-ID": seen[-2].id}
    async with client.stream("GET", f"/sandboxes/{sandbox}/events/stream", headers=headers) as answer:
        assert [event.event async for event in read_events(answer)] == ["sandbox.deleted"]


async def test_changes_of_files_are_told(client: httpx.AsyncClient, live_sandbox: str) -> None:
    path = f"/sandboxes/{live_sandbox}/files"
    async with client.stream("GET", f"{path}/watch", params={"path": "/workspace", "recursive": True}) as answer:
        await client.put(path, params={"path": "/workspace/new"}, content=b"x")
        async with asyncio.timeout(PATIENCE_S), aclosing(read_events(answer)) as events:
            async for event in events:
                assert event.event == "change"
                if json.loads(event.data)["path"] == "/workspace/new":
                    break


async def test_an_upload_that_breaks_off_leaves_the_old_file(client: httpx.AsyncClient, live_sandbox: str) -> None:
    path, params = f"/sandboxes/{live_sandbox}/files", {"path": "/workspace/kept"}
    await client.put(path, params=params, content=b"old")

    async def broken() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await client.put(path, params=params, content=broken())
    assert (await client.get(path, params=params)).content == b"old"


async def test_a_large_file_goes_through_whole(client: httpx.AsyncClient, live_sandbox: str) -> None:
    content = bytes(range(256)) * 4096 * 30
    path, params = f"/sandboxes/{live_sandbox}/files", {"path": "/workspace/large"}
    assert (await client.put(path, params=params, content=content)).json()["file"]["size"] == len(content)
    assert (await client.get(path, params=params)).content == content


async def test_the_server_does_not_say_what_it_is(client: httpx.AsyncClient) -> None:
    answer = await client.get("/me")
    assert "server" not in answer.headers
    assert_error(await client.post("/sandboxes/create", content=b"{"), 400)


def socket(live_server: LiveServer, path: str, *, key: bool = True) -> connect:
    return connect(live_server.ws_url + path, additional_headers=live_server.headers if key else {})


async def closed(connection: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await connection.recv()
    return connection.close_code or 0, connection.close_reason or ""


async def test_a_process_over_a_websocket(
    client: httpx.AsyncClient, live_server: LiveServer, live_sandbox: str
) -> None:
    process_id = await start(client, live_sandbox, command="cat; echo bye >&2; exit 5", stdin=True)
    async with socket(live_server, f"/sandboxes/{live_sandbox}/processes/{process_id}/ws") as connection:
        await connection.send(json.dumps({"type": "stdin", "data": base64.b64encode(b"hi").decode()}))
        echo = json.loads(await connection.recv())
        assert echo == {"type": "stdout", "offset": 0, "data": base64.b64encode(b"hi").decode()}
        await connection.send(json.dumps({"type": "close_stdin"}))
        assert json.loads(await connection.recv())["type"] == "stderr"
        ended = json.loads(await connection.recv())
        assert (ended["type"], ended["exit_code"]) == ("exit", 5)
        assert (await closed(connection))[0] == 1000


async def test_a_signal_over_a_websocket(client: httpx.AsyncClient, live_server: LiveServer, live_sandbox: str) -> None:
    process_id = await start(client, live_sandbox, command="sleep 60")
    async with socket(live_server, f"/sandboxes/{live_sandbox}/processes/{process_id}/ws") as connection:
        await connection.send(json.dumps({"type": "signal", "signal": "SIGTERM"}))
        ended = json.loads(await connection.recv())
    assert (ended["type"], ended["status"], ended["exit_code"]) == ("exit", "killed", 143)


async def receive_until(connection: ClientConnection, text: bytes) -> bytes:
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        while text not in got:
            frame = await connection.recv()
            assert isinstance(frame, bytes), frame
            got += frame
    return got


async def test_a_terminal_can_be_left_and_come_back_to(live_server: LiveServer, live_sandbox: str) -> None:
    path = f"/sandboxes/{live_sandbox}/terminal"
    async with socket(live_server, f"{path}?rows=30&cols=100") as connection:
        ready = json.loads(await connection.recv())
        assert ready["type"] == "ready"
        await connection.send(b"stty size; X=remembered\n")
        await receive_until(connection, b"30 100")
        await connection.send(json.dumps({"type": "resize", "rows": 40, "cols": 120}))
        await connection.send(b"stty size\n")
        await receive_until(connection, b"40 120")
    async with socket(live_server, f"{path}?process_id={ready['process_id']}&offset=0") as connection:
        assert json.loads(await connection.recv()) == ready
        await receive_until(connection, b"40 120")
        await connection.send(b"echo still-$X\n")
        await receive_until(connection, b"still-remembered")
        await connection.send(b"exit 3\n")
        async with asyncio.timeout(PATIENCE_S):
            while isinstance(frame := await connection.recv(), bytes):
                pass
        assert json.loads(frame)["exit_code"] == 3
        assert (await closed(connection))[0] == 1000


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/sandboxes/{sandbox}/terminal?rows=0", 4422),
        ("/sandboxes/{sandbox}/terminal?rows=x", 4422),
        ("/sandboxes/{sandbox}/terminal?cwd=../etc", 4422),
        ("/sandboxes/{sandbox}/terminal?process_id=nonsense", 4404),
        ("/sandboxes/{sandbox}/processes/p_0000000000000000/ws", 4404),
        ("/sandboxes/alice_00000000/terminal", 4404),
        ("/sandboxes/nonsense/terminal", 4404),
        ("/nowhere", 4404),
        ("/sandboxes/%ff/terminal", 4400),
    ],
)
async def test_a_websocket_is_refused_with_a_code_and_a_reason(
    live_server: LiveServer, live_sandbox: str, path: str, code: int
) -> None:
    async with socket(live_server, path.format(sandbox=live_sandbox)) as connection:
        closing, reason = await closed(connection)
    assert closing == code
    assert ": " in reason


async def test_a_websocket_needs_a_key(live_server: LiveServer, live_sandbox: str) -> None:
    async with socket(live_server, f"/sandboxes/{live_sandbox}/terminal", key=False) as connection:
        closing, reason = await closed(connection)
    assert (closing, reason.partition(":")[0]) == (4401, "unauthorized")


@pytest.mark.parametrize(
    "frame", ["{", "[]", '{"type": "dance"}', '{"type": "stdin", "data": "!"}', '{"type": "resize", "rows": 0}', "\0"]
)
async def test_a_frame_of_nonsense_closes_the_websocket(
    client: httpx.AsyncClient, live_server: LiveServer, live_sandbox: str, frame: str
) -> None:
    process_id = await start(client, live_sandbox, command="cat", stdin=True)
    async with socket(live_server, f"/sandboxes/{live_sandbox}/processes/{process_id}/ws") as connection:
        await connection.send(frame)
        assert (await closed(connection))[0] == 4422
    assert (await client.get(f"/sandboxes/{live_sandbox}/processes/{process_id}")).json()["status"] == "running"


async def test_open_streams_do_not_hold_up_a_stopping_server(settings: Settings) -> None:
    """They are given none of the time that a stopping server gives to what it has begun."""
    settings.drain_timeout = 2 * PATIENCE_S
    with running(settings) as live_server:
        async with live_server.client() as client:
            made = await client.post("/sandboxes/create", json={"user_id": "alice"})
            path = f"/sandboxes/{made.json()['sandbox_id']}/processes"
            process_id = (await client.post(path, json={"command": "sleep 600"})).json()["process_id"]
            async with client.stream("GET", f"{path}/{process_id}/stream") as answer:
                live_server.stop()
                async with asyncio.timeout(PATIENCE_S):
                    assert [event async for event in read_events(answer)] == []
