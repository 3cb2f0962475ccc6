"""``run_code`` by the native API, with the Python client, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from paddock import errors
from paddock.client import (
    CodeEnded,
    CodeOutput,
    CodeRaised,
    CodeShown,
    CodeStarted,
    SandboxClient,
    SyncSandboxClient,
)
from tests.client.server import RunningServer, running_server
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home: Path = tmp_path_factory.mktemp("native") / "home"
    with running_server(home) as server:
        yield server
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            for sandbox in client.iter_sandboxes():
                client.delete_sandbox(sandbox.sandbox_id)


@pytest.fixture(scope="module")
def box(server: RunningServer) -> str:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        return client.create_sandbox("alice").sandbox_id


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[SandboxClient]:
    async with SandboxClient(server.url, api_key=server.key) as client:
        yield client


async def test_code_and_its_result(client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.getcwd()")
    assert (result.status, result.text, result.stdout, result.stderr) == (
        "completed",
        "/workspace",
        "out\n",
        "err\n",
    )
    assert result.error is None
    assert result.execution_count == 1
    assert [value.is_main_result for value in result.results] == [True]


async def test_forms_of_a_result(client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, "display({'text/html': '<b>', 'x/own': 1}, raw=True)\n[1, 2]")
    first, main = result.results
    assert first.formats == {"html": "<b>", "x/own": 1}
    assert (main.text, main.formats) == ("[1, 2]", {"json": [1, 2]})
    assert result["results"][1]["formats"]["json"] == [1, 2]


async def test_code_that_fails_is_an_answer(client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, "1 / 0")
    assert result.status == "failed"
    assert result.error is not None
    assert (result.error.name, result.error.value) == ("ZeroDivisionError", "division by zero")
    assert "ZeroDivisionError" in result.error.traceback


@pytest.mark.parametrize(
    "code", ["1 / 0", "1 +", "raise ValueError('\\x1b[31mred\\x1b[0m')", "raise SystemExit('\\x1b[1mbold')"]
)
async def test_an_error_has_no_colour_codes(code: str, client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, code)
    [raised] = [event async for event in client.stream_code(box, code) if isinstance(event, CodeRaised)]
    assert result.error is not None
    for error in (result.error, raised):
        assert "\x1b" not in f"{error.name} {error.value} {error.traceback}"


async def test_languages_variables_and_contexts(client: SandboxClient, box: str) -> None:
    shown = await client.run_code(box, "echo $WHO", "bash", env={"WHO": "me"})
    assert shown.stdout == "me\n"
    context = await client.create_code_context(box, cwd="/tmp")
    await client.run_code(box, "x = 1", context_id=context.context_id)
    assert (await client.run_code(box, "x", context_id=context.context_id)).text == "1"
    assert context in await client.list_code_contexts(box)
    await client.restart_code_context(box, context.context_id)
    assert (await client.run_code(box, "x", context_id=context.context_id)).status == "failed"
    await client.delete_code_context(box, context.context_id)
    with pytest.raises(errors.CodeContextNotFound):
        await client.run_code(box, "x", context_id=context.context_id)


async def test_what_cannot_be_run_is_refused(client: SandboxClient, box: str) -> None:
    with pytest.raises(errors.InterpreterMissing, match="cobol"):
        await client.run_code(box, "1", "cobol")
    with pytest.raises(errors.Invalid):
        await client.run_code(box, "1", "python", context_id="5c1d7a52")
    with pytest.raises(errors.SandboxNotFound):
        await client.run_code("alice_00000000", "1")
    with pytest.raises(errors.CodeContextNotFound):
        await client.delete_code_context(box, "nobody")


async def test_code_is_interrupted_when_its_time_is_over(client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, "print('before', flush=True)\nimport time; time.sleep(300)", timeout=0.5)
    assert (result.status, result.stdout) == ("timed_out", "before\n")
    assert (await client.run_code(box, "'fine'", timeout=PATIENCE_S)).text == "fine"


async def test_a_caller_who_leaves_interrupts_the_code(client: SandboxClient, box: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.run_code(box, "import time; time.sleep(300)")
    assert (await client.run_code(box, "'fine'", timeout=PATIENCE_S)).text == "fine"


async def test_streamed_code(client: SandboxClient, box: str) -> None:
    events = [event async for event in client.stream_code(box, "print('out')\n'shown'\n1 / 0")]
    assert [type(event) for event in events] == [CodeStarted, CodeOutput, CodeRaised, CodeEnded]
    _, output, raised, ended = events
    assert isinstance(output, CodeOutput) and (output.stream, output.data) == ("stdout", "out\n")
    assert isinstance(raised, CodeRaised) and raised.name == "ZeroDivisionError"
    assert isinstance(ended, CodeEnded) and ended.status == "failed"
    events = [event async for event in client.stream_code(box, "'shown'")]
    shown = events[1]
    assert isinstance(shown, CodeShown) and (shown.text, shown.is_main_result) == ("shown", True)


async def test_who_stops_reading_a_stream_interrupts_the_code(client: SandboxClient, box: str) -> None:
    async with aclosing(client.stream_code(box, "import time; time.sleep(300)")) as events:  # type: ignore[type-var]
        assert isinstance(await anext(events), CodeStarted)
    assert (await client.run_code(box, "'fine'", timeout=PATIENCE_S)).text == "fine"


async def test_a_streams_refusal_has_a_status(client: SandboxClient, box: str) -> None:
    with pytest.raises(errors.InterpreterMissing):
        async for _ in client.stream_code(box, "1", "cobol"):
            pass


async def test_much_output_is_cut_in_an_answer_and_whole_in_a_stream(client: SandboxClient, box: str) -> None:
    result = await client.run_code(box, "print('x' * 2_000_000)")
    assert result.truncated
    assert len(result.stdout) == 1 << 20
    streamed = [event async for event in client.stream_code(box, "print('x' * 2_000_000)")]
    assert sum(len(event.data) for event in streamed if isinstance(event, CodeOutput)) == 2_000_001


async def test_running_code_wakes_and_is_counted(client: SandboxClient) -> None:
    made = await client.create_sandbox("alice")
    await client.run_code(made.sandbox_id, "kept = 5")
    await client.pause_sandbox(made.sandbox_id)
    assert (await client.run_code(made.sandbox_id, "kept")).text == "5"
    events = (await client.events(made.sandbox_id)).events
    ran = [event.data for event in events if event.type == "code.finished"]
    assert [data["code"] for data in ran] == ["kept = 5", "kept"]
    await client.delete_sandbox(made.sandbox_id)


def test_the_other_client(server: RunningServer, box: str) -> None:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        assert client.run_code(box, "6 * 7").text == "42"
        assert [event.type for event in client.stream_code(box, "1")] == ["started", "result", "end"]


async def test_services_by_the_api(client: SandboxClient, box: str) -> None:
    made = await client.put_service(
        box, "web", 8000, "python3 -m http.server 8000", ready_path="/", ready_timeout=PATIENCE_S
    )
    assert (made.name, made.port, made.cwd, made.running, made.process_id) == ("web", 8000, "/workspace", False, None)
    assert await client.list_services(box) == [made]
    assert await client.get_service(box, "web") == made
    await client.delete_service(box, "web")
    with pytest.raises(errors.ServiceNotFound):
        await client.get_service(box, "web")
    for name, port, path in (("Not a name", 80, None), ("web", 0, None), ("web", 80, "no-slash"), ("web", 80, "/a b")):
        with pytest.raises(errors.Invalid):
            await client.put_service(box, name, port, "true", ready_path=path)
