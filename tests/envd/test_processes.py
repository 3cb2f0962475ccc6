"""``process.Process`` on the wire: every event, every field and every order that E2B's clients rely on."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx
import pytest

from tests.api.conftest import LiveServer
from tests.envd.box import Box, collected, envelope, envelopes
from tests.envd.conftest import NewBox
from tests.support.waiting import PATIENCE_S

START, CONNECT, LIST = "process.Process/Start", "process.Process/Connect", "process.Process/List"
SIGNAL, INPUT = "process.Process/SendSignal", "process.Process/SendInput"


def by_pid(pid: int, **more: object) -> dict[str, object]:
    return {"process": {"pid": pid}, **more}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Starting


async def test_a_command_is_start_data_end_and_the_end_of_the_stream(box: Box) -> None:
    ran = await box.run("echo hello; echo err >&2")
    assert list(ran.events[0]) == ["start"] and ran.pid > 0
    assert ran.out == {"stdout": b"hello\n", "stderr": b"err\n", "pty": b""}
    assert ran.end == {"exitCode": 0, "exited": True, "status": "exit status 0"}
    assert ran.last == {}


async def test_an_exit_code_is_told_with_an_error(box: Box) -> None:
    ran = await box.run("exit 7")
    assert ran.end == {"exitCode": 7, "exited": True, "status": "exit status 7", "error": "exit status 7"}


async def test_death_by_a_signal_is_told_in_gos_words(box: Box) -> None:
    for number, name in ((9, "killed"), (15, "terminated"), (11, "segmentation fault")):
        ran = await box.run(f"kill -{number} $$")
        status = f"signal: {name}"
        assert ran.end == {"exitCode": -1, "exited": False, "status": status, "error": status}


async def test_output_comes_when_it_is_written(box: Box) -> None:
    async with box.running("echo one; read line; echo two", stdin=True) as stream:
        pid = await stream.pid()
        await stream.until(b"one\n")
        await box.ok(INPUT, by_pid(pid, input={"stdin": b64(b"go\n")}))
        await stream.until(b"two\n")


async def test_the_pid_is_the_one_inside(box: Box) -> None:
    async with box.running("sleep 100") as stream:
        pid = await stream.pid()
        assert (await box.run(f"kill -0 {pid}")).end["exitCode"] == 0
        await box.ok(SIGNAL, by_pid(pid, signal="SIGNAL_SIGKILL"))
        assert collected(await stream.rest()).end["status"] == "signal: killed"
    assert (await box.run(f"kill -0 {pid} 2>/dev/null")).end["exitCode"] == 1


async def test_large_output_is_whole_and_in_small_pieces(box: Box) -> None:
    ran = await box.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert ran.out["stdout"] == b"x" * 3_000_000
    assert ran.out["stderr"] == b"end\n"


async def test_environment_is_users_then_sandboxes_then_requests(box: Box) -> None:
    document = {"process": {"cmd": "/usr/bin/env", "envs": {"MINE": "1", "FROM_SANDBOX": "mine"}}}
    async with box.stream(START, document) as stream:
        lines = collected(await stream.rest()).stdout.splitlines()
    seen = dict(line.partition("=")[::2] for line in lines)
    assert seen["MINE"] == "1"
    assert seen["FROM_SANDBOX"] == "mine"
    assert (seen["HOME"], seen["USER"], seen["LOGNAME"]) == ("/home/user", "user", "user")
    assert (seen["E2B_SANDBOX"], seen["E2B_SANDBOX_ID"]) == ("true", box.key)
    assert "/usr/bin" in seen["PATH"].split(":")
    told = {"PADDOCK_MCP_URL", "PADDOCK_MCP_TOKEN"}
    assert not {name for name in seen if name.startswith("PADDOCK")} - told


async def test_programs_can_tell_where_they_are(box: Box) -> None:
    ran = await box.run(
        "cat /run/e2b/.E2B_SANDBOX; echo; cat /run/e2b/.E2B_SANDBOX_ID; echo; ls /run/e2b/.E2B_TEMPLATE_ID"
    )
    assert ran.stdout.splitlines() == ["true", box.key, "/run/e2b/.E2B_TEMPLATE_ID"]


async def test_the_user_is_chosen_by_basic_and_home_is_where_it_starts(box: Box, provider: str) -> None:
    assert (await box.run("pwd; echo $HOME")).stdout == "/home/user\n/home/user\n"
    root = await box.as_user("root").run("pwd; echo $HOME $USER")
    assert root.stdout.splitlines()[-1] == "/root root"
    if provider == "local":
        assert (await box.run("id -un")).stdout == "user\n"
        assert (await box.as_user("root").run("id -un; pwd")).stdout == "root\n/root\n"
    error = await box.as_user("nobody-here").failed_start(box.start("true"))
    assert error == {"code": "unauthenticated", "message": "invalid username: 'nobody-here'"}


async def test_a_working_directory_follows_the_rules_of_paths(box: Box) -> None:
    for given, expected in (
        ("/tmp", "/tmp"),
        ("", "/home/user"),
        ("~", "/home/user"),
        ("/tmp/../workspace", "/workspace"),
    ):
        assert (await box.run("pwd", process={"cwd": given})).stdout == expected + "\n"
    error = await box.failed_start(box.start("pwd", process={"cwd": "/no/such"}))
    assert error == {"code": "invalid_argument", "message": "cwd '/no/such' does not exist"}
    relative = await box.failed_start(box.start("pwd", process={"cwd": "missing"}))
    assert relative["message"] == "cwd '/home/user/missing' does not exist"


async def test_a_program_that_is_not_there_is_an_invalid_argument(box: Box) -> None:
    error = await box.failed_start({"process": {"cmd": "/no/such/program"}})
    assert error["code"] == "invalid_argument"
    assert (await box.failed_start({"process": {"cmd": ""}}))["code"] == "invalid_argument"
    assert (await box.failed_start({}))["code"] == "invalid_argument"


async def test_a_stream_waits_for_children_that_hold_the_output(box: Box) -> None:
    ran = await box.run("(sleep 0.5; echo late) & echo early; exit 3")
    assert ran.stdout == "early\nlate\n"
    assert ran.end["exitCode"] == 3


# Deadlines and keep-alives


async def test_the_deadline_kills_and_is_told(box: Box) -> None:
    began = asyncio.get_running_loop().time()
    async with box.running("echo $$; sleep 100; echo x", {"Connect-Timeout-Ms": "700"}) as stream:
        pid = await stream.pid()
        ran = collected([(0, {"event": {"start": {"pid": pid}}}), *await stream.rest()])
    assert ran.error["code"] == "deadline_exceeded"
    assert 0.6 < asyncio.get_running_loop().time() - began < 5
    assert "end" not in ran.events[-1]
    assert (await box.run(f"kill -0 {pid} 2>/dev/null")).end["exitCode"] == 1
    assert (await box.ok(LIST))["processes"] == []


async def test_the_deadline_also_strikes_when_the_client_has_left(box: Box) -> None:
    async with box.running("echo $$ > pid; sleep 100", {"Connect-Timeout-Ms": "1000"}) as stream:
        await stream.pid()
    async with asyncio.timeout(PATIENCE_S):
        while (await box.ok(LIST))["processes"]:
            await asyncio.sleep(0.1)


async def test_a_deadline_that_is_kept_is_not_told(box: Box) -> None:
    assert (await box.run("sleep 0.2", {"Connect-Timeout-Ms": "20000"})).last == {}
    assert (await box.run("true", {"Connect-Timeout-Ms": "0"})).last == {}


async def test_nothing_happening_is_told_now_and_then(box: Box) -> None:
    async with box.running("sleep 1.5", {"Keepalive-Ping-Interval": "1"}) as stream:
        await stream.pid()
        assert await stream.event() == {"keepalive": {}}
        assert "end" in await stream.event()


# Leaving and coming back


async def test_who_leaves_does_not_end_it_and_who_comes_back_hears_the_rest(box: Box) -> None:
    async with box.running("echo first; read a; echo second; read b; exit 5", stdin=True) as stream:
        pid = await stream.pid()
        await stream.until(b"first\n")
    async with box.stream(CONNECT, by_pid(pid)) as one, box.stream(CONNECT, by_pid(pid)) as two:
        assert [await one.pid(), await two.pid()] == [pid, pid]
        await box.ok(INPUT, by_pid(pid, input={"stdin": b64(b"\n")}))
        assert await one.until(b"second\n") == await two.until(b"second\n") == b"second\n"
        await box.ok(INPUT, by_pid(pid, input={"stdin": b64(b"\n")}))
        for stream in (one, two):
            assert (await stream.event())["end"]["exitCode"] == 5
            assert await anext(stream) == (2, {})


async def test_an_end_can_be_heard_for_a_while(box: Box) -> None:
    ran = await box.run("exit 9")
    async with box.stream(CONNECT, by_pid(ran.pid)) as stream:
        again = collected(await stream.rest())
    assert again.pid == ran.pid
    assert again.end["exitCode"] == 9
    assert again.stdout == ""


async def test_nobody_has_a_pid_that_was_never_given(box: Box) -> None:
    async with box.stream(CONNECT, by_pid(999_999)) as stream:
        [(flags, last)] = await stream.rest()
    assert (flags, last["error"]) == (2, {"code": "not_found", "message": "process with pid 999999 not found"})
    for method, more in ((SIGNAL, {"signal": "SIGNAL_SIGKILL"}), (INPUT, {"input": {"stdin": ""}})):
        assert await box.fails(method, by_pid(999_999, **more), 404, "not_found") == "process with pid 999999 not found"


async def test_a_process_that_has_ended_is_not_found_by_those_who_act(box: Box) -> None:
    ran = await box.run("true")
    await box.fails(SIGNAL, by_pid(ran.pid, signal="SIGNAL_SIGTERM"), 404, "not_found")
    await box.fails("process.Process/CloseStdin", by_pid(ran.pid), 404, "not_found")


# Listing


async def test_listed_are_those_that_run_with_what_was_asked_for(
    box: Box, client: httpx.AsyncClient, server: LiveServer
) -> None:
    config = {"cmd": "/bin/sleep", "args": ["100"], "envs": {"A": "ü"}, "cwd": "/tmp"}
    async with box.stream(START, {"process": config, "tag": "mine"}) as stream:
        pid = await stream.pid()
        assert (await box.ok(LIST))["processes"] == [{"config": config, "pid": pid, "tag": "mine"}]
        native = await client.post(
            f"/sandboxes/{box.sandbox_id}/processes", json={"command": "sleep 77"}, headers={"X-API-Key": server.key}
        )
        assert native.status_code == 200, native.text
        listed = (await box.ok(LIST))["processes"]
        assert [entry["pid"] for entry in listed] == [pid, native.json()["pid"]]
        assert "sleep 77" in listed[1]["config"]["args"]
        await box.ok(SIGNAL, {"process": {"pid": listed[1]["pid"]}, "signal": "SIGNAL_SIGKILL"})
        await box.ok(SIGNAL, {"process": {"tag": "mine"}, "signal": "SIGNAL_SIGKILL"})
        await stream.rest()
    async with asyncio.timeout(PATIENCE_S):  # the end of the other one, which nobody follows, is told a moment later
        while (await box.ok(LIST))["processes"]:
            await asyncio.sleep(0.01)


async def test_a_very_long_command_can_be_listed(box: Box) -> None:
    async with box.running("sleep 100; : " + "x" * 90_000, tag="long") as stream:
        pid = await stream.pid()
        [entry] = (await box.ok(LIST))["processes"]
        assert (entry["pid"], entry["tag"]) == (pid, "long")
        await box.ok(SIGNAL, by_pid(pid, signal="SIGNAL_SIGKILL"))


# Input


async def test_input_goes_in_and_is_closed(box: Box) -> None:
    async with box.running("cat; echo over; sleep 100", stdin=True) as stream:
        pid = await stream.pid()
        await box.ok(INPUT, by_pid(pid, input={"stdin": b64(b"some\n")}))
        await stream.until(b"some\n")
        await box.ok("process.Process/CloseStdin", by_pid(pid))
        await box.ok("process.Process/CloseStdin", by_pid(pid))
        await stream.until(b"over\n")
        await box.ok(SIGNAL, by_pid(pid, signal="SIGNAL_SIGKILL"))


async def test_input_is_open_unless_it_is_declined(box: Box) -> None:
    asked = {"process": {"cmd": "/bin/cat"}}
    async with box.stream(START, asked) as stream:
        pid = await stream.pid()
        await box.ok(INPUT, by_pid(pid, input={"stdin": b64(b"x\n")}))
        await stream.until(b"x\n")
        await box.ok("process.Process/CloseStdin", by_pid(pid))
    async with box.running("sleep 100") as stream:
        pid = await stream.pid()
        await box.fails(INPUT, by_pid(pid, input={"stdin": b64(b"x")}), 500, "internal")
        await box.ok(SIGNAL, by_pid(pid, signal="SIGNAL_SIGKILL"))


async def test_input_may_come_as_a_stream(box: Box) -> None:
    pieces = [f"{n}\n".encode() for n in range(200)]
    async with box.running("cat | sha256sum", stdin=True) as stream:
        pid = await stream.pid()
        messages = [
            {"start": by_pid(pid)},
            *({"data": {"input": {"stdin": b64(piece)}}} for piece in pieces),
            {"keepalive": {}},
        ]
        body = b"".join(envelope(message) for message in messages)
        answer = await box.post("/process.Process/StreamInput", body, **{"Content-Type": "application/connect+json"})
        assert list(envelopes(answer.content)) == [(0, {}), (2, {})]
        await box.ok("process.Process/CloseStdin", by_pid(pid))
        ran = collected([(0, {"event": {"start": {"pid": pid}}}), *await stream.rest()])
    expected = await box.run("seq 0 199 | sha256sum")
    assert ran.stdout == expected.stdout


async def test_a_streamed_input_must_say_for_whom(box: Box) -> None:
    body = envelope({"data": {"input": {"stdin": ""}}})
    answer = await box.post("/process.Process/StreamInput", body, **{"Content-Type": "application/connect+json"})
    [(flags, last)] = envelopes(answer.content)
    assert (flags, last["error"]["code"]) == (2, "invalid_argument")


# Signals


async def test_a_signal_reaches_the_process_and_not_its_children(box: Box) -> None:
    async with box.running("sleep 200 & trap 'exit 4' TERM; echo $!; while :; do sleep 0.05; done") as stream:
        pid = await stream.pid()
        child = int(await stream.until(b"\n"))
        await box.ok(SIGNAL, by_pid(pid, signal="SIGNAL_SIGTERM"))
        assert (await stream.event())["end"]["exitCode"] == 4
    assert (await box.run(f"kill {child}")).end["exitCode"] == 0


async def test_other_signals_cannot_be_sent(box: Box) -> None:
    async with box.running("sleep 100") as stream:
        pid = await stream.pid()
        await box.fails(SIGNAL, by_pid(pid, signal="SIGNAL_UNSPECIFIED"), 501, "unimplemented")
        await box.ok(SIGNAL, by_pid(pid, signal=15))
        assert (await stream.event())["end"]["status"] == "signal: terminated"


# Terminals


async def test_a_terminal_has_a_size_echoes_and_is_resized(box: Box) -> None:
    asked = {
        "process": {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": {"TERM": "xterm", "PS1": "$ "}},
        "pty": {"size": {"cols": 91, "rows": 33}},
    }
    async with box.stream(START, asked) as stream:
        pid = await stream.pid()
        await box.ok(INPUT, by_pid(pid, input={"pty": b64(b"stty size; tty -s && echo y''es\n")}))
        assert b"33 91" in await stream.until(b"yes\r\n")
        await box.ok("process.Process/Update", by_pid(pid, pty={"size": {"cols": 120, "rows": 40}}))
        await box.ok(INPUT, by_pid(pid, input={"pty": b64(b"stty size\n")}))
        await stream.until(b"40 120")
        await box.fails("process.Process/CloseStdin", by_pid(pid), 500, "unknown")
        await box.fails(INPUT, by_pid(pid, input={"stdin": b64(b"x")}), 500, "internal")
        await box.ok(INPUT, by_pid(pid, input={"pty": b64(b"exit 3\n")}))
        end = [document for _, document in await stream.rest()][-2]
    assert end["event"]["end"]["exitCode"] == 3


async def test_snake_case_and_numbers_as_text_are_understood(box: Box) -> None:
    async with box.running("sleep 100") as stream:
        pid = await stream.pid()
        await box.ok(SIGNAL, {"process": {"pid": str(pid)}, "signal": "SIGNAL_SIGKILL"})
    async with box.stream("filesystem.Filesystem/WatchDir", {"path": "/tmp", "include_entry": True}) as watch:
        assert await anext(watch) == (0, {"start": {}})
        await box.put("/tmp/noted", b"x")
        assert (await anext(watch))[1]["filesystem"]["entry"]["name"] == "noted"


@pytest.mark.parametrize("count", [40])
async def test_many_commands_at_once_keep_to_their_own_output(new_box: NewBox, count: int) -> None:
    box = await new_box()
    found = await asyncio.gather(*(box.run(f"echo {n}; sleep 0.1; echo {n}") for n in range(count)))
    assert [ran.stdout for ran in found] == [f"{n}\n{n}\n" for n in range(count)]
    assert json.dumps([ran.end["exitCode"] for ran in found]) == json.dumps([0] * count)
