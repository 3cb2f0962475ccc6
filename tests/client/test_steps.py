"""Several calls as one, on both clients."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from paddock.client import SandboxClient, SyncSandboxClient
from paddock.client.call import Steps, ask, run_steps, run_steps_async
from paddock.client.calls.files import read_file, write_file
from paddock.client.pair import ClientPair
from paddock.errors import PathNotFound

BOX = "alice_1f2e3d4c"


def answer(request: httpx.Request) -> httpx.Response:
    if request.url.path.endswith("read-file"):
        error = {"code": "file_not_found", "message": "There is no such file.", "status": 404, "details": {}}
        return httpx.Response(404, json={"success": False, "error": error})
    info = {"path": "/a", "name": "a", "type": "file", "size": 0, "mode": "0644", "owner": "user", "group": "user"}
    return httpx.Response(200, json={"success": True, "message": "", "file": {**info, "modified_at": ""}})


def read_or_begin() -> Steps[str]:
    try:
        return (yield from ask(read_file(BOX, "/a")))
    except PathNotFound:
        written = yield from ask(write_file(BOX, "/a", ""))
        return f"began {written.file.path}"


def refused() -> Steps[str]:
    return (yield from ask(read_file(BOX, "/a")))


def test_a_failure_is_raised_where_the_call_was_made() -> None:
    with SyncSandboxClient("http://server", transport=httpx.MockTransport(answer)) as client:
        assert run_steps(client, read_or_begin()) == "began /a"
        with pytest.raises(PathNotFound):
            run_steps(client, refused())


async def test_the_same_steps_are_carried_out_by_the_async_client() -> None:
    async with SandboxClient("http://server", transport=httpx.MockTransport(answer)) as client:
        assert await run_steps_async(client, read_or_begin()) == "began /a"
        with pytest.raises(PathNotFound):
            await run_steps_async(client, refused())


def test_each_event_loop_has_a_client_of_its_own() -> None:
    pair = ClientPair(server_url="http://127.0.0.1:1", api_key="key")

    async def here() -> SandboxClient:
        assert pair.here() is pair.here()
        return pair.here()

    assert asyncio.run(here()) is not asyncio.run(here())
    assert pair.plain() is pair.plain()
    pair.close()


def test_a_client_that_was_lent_is_used_and_left_open() -> None:
    with SyncSandboxClient("http://server", transport=httpx.MockTransport(answer)) as client:
        pair = ClientPair(client)
        assert pair.plain() is client
        pair.close()
        assert pair.run(read_or_begin()) == "began /a"
