"""Starting commands: what they get, what they give back, and that one id is one process."""

from __future__ import annotations

import asyncio
import time

import pytest

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import Machine, ProcessSpec, ProcessStatus
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize("code", [0, 1, 7, 126, 255])
async def test_the_exit_code_is_the_commands_own(shell: Shell, code: int) -> None:
    ran = await shell.run(f"exit {code}")
    assert (ran.code, ran.info.status) == (code, ProcessStatus.COMPLETED)


async def test_an_exit_code_that_looks_like_a_signal_is_still_an_exit(shell: Shell) -> None:
    ran = await shell.run("exit 137")
    assert (ran.code, ran.info.status) == (137, ProcessStatus.COMPLETED)


async def test_stdout_and_stderr_are_kept_apart(shell: Shell) -> None:
    ran = await shell.run("echo out; echo err >&2; echo more")
    assert (ran.out, ran.err) == (b"out\nmore\n", b"err\n")


async def test_writing_to_dev_stdout_adds_to_the_output(shell: Shell) -> None:
    ran = await shell.run("echo one; echo two > /dev/stdout; echo three; echo e1 >&2; echo e2 > /dev/stderr")
    assert (ran.out, ran.err) == (b"one\ntwo\nthree\n", b"e1\ne2\n")


async def test_the_environment_is_the_sandboxs_with_the_commands_on_top(shell: Shell) -> None:
    ran = await shell.run(
        'echo "$FROM_SANDBOX|$SHADOWED|$MINE|$HOME|$USER"', env={"SHADOWED": "command", "MINE": "a b\n=ü$x"}
    )
    assert ran.text == "yes|command|a b\n=ü$x|/home/user|user"


async def test_nothing_of_the_servers_environment_gets_in(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_SECRET", "hunter2")
    assert "hunter2" not in (await shell.run("env; cat /proc/*/environ 2>/dev/null")).out.decode(errors="replace")


async def test_a_command_starts_in_the_workspace_or_where_it_is_told(shell: Shell) -> None:
    assert (await shell.run("pwd")).text == "/workspace"
    await shell.machine.make_directory("/workspace/a dir")
    assert (await shell.run("pwd", cwd="/workspace/a dir")).text == "/workspace/a dir"
    assert (await shell.run("pwd", cwd="/usr/bin")).text == "/usr/bin"


async def test_a_missing_working_directory_is_an_error_and_starts_nothing(shell: Shell) -> None:
    with pytest.raises(errors.PathNotFound):
        await shell.start("touch /workspace/ran", cwd="/no/such/place")
    await shell.put("/workspace/file", "x")
    with pytest.raises(errors.PathConflict):
        await shell.start("touch /workspace/ran", cwd="/workspace/file")
    assert [entry.name for entry in await shell.machine.list_directory("/workspace")] == ["file"]
    assert await shell.machine.processes() == []


async def test_a_missing_program_is_127_and_says_so(machine: Machine, shell: Shell) -> None:
    process = new_process_id()
    await machine.spawn(ProcessSpec(process, ["no-such-program", "x"]))
    ran = await shell.finish(process)
    assert ran.code == 127
    assert b"no-such-program" in ran.err


async def test_arguments_arrive_as_they_are(machine: Machine, shell: Shell) -> None:
    process = new_process_id()
    words = ["a b", "", "$HOME", "*", "'\"", "-n", "ü\n", "a=b"]
    await machine.spawn(ProcessSpec(process, ["printf", "[%s]", *words]))
    assert (await shell.finish(process)).out.decode() == "".join(f"[{word}]" for word in words)


async def test_an_empty_command_is_refused(machine: Machine) -> None:
    with pytest.raises(errors.Invalid):
        await machine.spawn(ProcessSpec(new_process_id(), []))


async def test_commands_run_as_an_ordinary_user(shell: Shell) -> None:
    ran = await shell.run(
        "id -u; id -un; grep CapEff /proc/self/status; touch /workspace/a /home/user/b /tmp/c && echo ok"
    )
    assert ran.text.split() == ["1000", "user", "CapEff:", "0000000000000000", "ok"]


async def test_an_unknown_user_is_refused(machine: Machine) -> None:
    with pytest.raises(errors.Invalid):
        await machine.spawn(ProcessSpec(new_process_id(), ["true"], user="nobody-here"))


async def test_input_is_empty_unless_asked_for(shell: Shell) -> None:
    process = await shell.start("cat; echo done")
    assert (await shell.finish(process)).text == "done"
    with pytest.raises(errors.Conflict):
        await shell.machine.write_stdin(process, b"x")


async def test_input_arrives_and_ends_when_closed(shell: Shell) -> None:
    process = await shell.start("cat; echo done", stdin=True)
    await shell.machine.write_stdin(process, b"one\n")
    await shell.until(process, b"one\n")
    await shell.machine.write_stdin(process, b"two\xff\n")
    await shell.machine.close_stdin(process)
    await shell.machine.close_stdin(process)
    assert (await shell.finish(process)).out == b"one\ntwo\xff\ndone\n"


async def test_input_closed_at_once_still_arrives_whole(shell: Shell) -> None:
    data = bytes(range(256)) * 4096
    process = await shell.start("wc -c", stdin=True)
    await asyncio.wait_for(shell.machine.write_stdin(process, data), PATIENCE_S)
    await shell.machine.close_stdin(process)
    assert (await shell.finish(process)).text == str(len(data))


async def test_writing_to_a_process_that_has_ended_says_so(shell: Shell) -> None:
    process = await shell.start("true", stdin=True)
    await shell.finish(process)
    with pytest.raises(errors.ProcessEnded):
        await shell.machine.write_stdin(process, b"x")


async def test_input_works_through_a_new_server(installation: Installation, shell: Shell) -> None:
    process = await shell.start("cat", stdin=True)
    await shell.machine.write_stdin(process, b"old ")
    await shell.until(process, b"old ")
    after = Shell(await (await installation.restart()).attach(shell.machine.sandbox_id))
    await after.machine.write_stdin(process, b"new")
    await after.machine.close_stdin(process)
    assert (await after.finish(process)).out == b"old new"


async def test_the_same_id_never_starts_a_second_process(shell: Shell) -> None:
    process = new_process_id()
    first = await shell.start("echo run >> /workspace/runs; sleep 1000", process_id=process)
    assert first == process
    await shell.start("echo run >> /workspace/runs", process_id=process)
    await asyncio.gather(*(shell.start("echo run >> /workspace/runs", process_id=process) for _ in range(5)))
    told = await shell.run("until [ -s /workspace/runs ]; do sleep 0.01; done; cat /workspace/runs")
    assert told.text == "run"
    assert len([info for info in await shell.machine.processes() if info.process_id == process]) == 1


async def test_the_same_id_at_the_same_time_from_two_servers_starts_one(
    installation: Installation, shell: Shell
) -> None:
    beside = installation.build()
    await beside.start()
    other = Shell(await beside.attach(shell.machine.sandbox_id))
    process = new_process_id()
    await asyncio.gather(
        *(one.start("echo run >> /workspace/runs", process_id=process) for one in (shell, other) for _ in range(4))
    )
    await shell.finish(process)
    assert await shell.get("/workspace/runs") == b"run\n"
    await beside.close()


async def test_an_id_used_before_a_restart_is_still_used_after(installation: Installation, shell: Shell) -> None:
    process = (await shell.run("echo first")).info.process_id
    after = Shell(await (await installation.restart()).attach(shell.machine.sandbox_id))
    await after.start("echo second", process_id=process)
    assert (await after.finish(process)).text == "first"


async def test_an_unknown_process_is_not_found(machine: Machine) -> None:
    for unknown in (new_process_id(), "../../etc", ""):
        with pytest.raises(errors.ProcessNotFound):
            await machine.process(unknown)
    with pytest.raises(errors.ProcessNotFound):
        await machine.wait(new_process_id(), 1)
    with pytest.raises(errors.ProcessNotFound):
        await machine.signal(new_process_id(), 15)


async def test_processes_are_listed_oldest_first_with_their_labels(shell: Shell) -> None:
    scripts = ["echo 1", "sleep 1000", "echo 3"]
    for script in scripts:
        await shell.start(script)
    listed = await shell.machine.processes()
    assert [info.label for info in listed] == scripts
    assert listed[1].running and listed[1].pid and listed[1].ended_at is None
    ended = (await shell.finish(listed[0].process_id)).info
    assert ended.ended_at is not None and ended.started_at <= ended.ended_at <= time.time() + 1


async def test_waiting_ends_softly_when_its_time_is_up(shell: Shell) -> None:
    process = await shell.start("sleep 1000")
    began = time.monotonic()
    info = await shell.machine.wait(process, 0.1)
    assert info.running and info.exit_code is None
    assert time.monotonic() - began > 0.09
    assert (await shell.machine.wait(process, 0)).running


async def test_waiting_ends_soon_after_the_process(shell: Shell) -> None:
    """Within a tenth of a second, and what a few requests take now."""
    late = []
    for _ in range(5):
        process = await shell.start("read x; date +%s.%N", stdin=True)
        waiting = asyncio.create_task(shell.machine.wait(process, PATIENCE_S))
        await asyncio.sleep(0)
        await shell.machine.write_stdin(process, b"\n")
        await waiting
        told = time.time()
        ended = float(await shell.read(process))
        late.append(told - ended - 5 * (time.time() - told))
    assert min(late) < 0.1


async def test_a_background_child_does_not_keep_the_command_from_ending(shell: Shell) -> None:
    ran = await shell.run("(while [ ! -e stop ]; do sleep 0.01; done; echo late) & echo started")
    assert ran.text == "started"
    assert ran.info.status is ProcessStatus.COMPLETED
    await shell.put("/workspace/stop", "")
    async with asyncio.timeout(PATIENCE_S):
        while await shell.read(ran.info.process_id) != b"started\nlate\n":
            await asyncio.sleep(0.01)


async def test_commands_share_processes_and_network(shell: Shell) -> None:
    listen = "import socket; s = socket.create_server(('127.0.0.1', 7001)); print('up', flush=True)"
    server = await shell.start(f"""python3 -c "{listen}; s.accept()[0].send(b'hello')" """)
    await shell.until(server, b"up")
    client = await shell.run("exec bash -c 'cat < /dev/tcp/127.0.0.1/7001'")
    assert client.text == "hello"
    sleeper = await shell.start("exec sleep 1000")
    pid = (await shell.machine.process(sleeper)).pid
    assert (await shell.run(f"kill -TERM {pid}")).code == 0
    assert (await shell.finish(sleeper)).info.status is ProcessStatus.KILLED


async def test_many_processes_at_once_each_keep_their_own_output(shell: Shell) -> None:
    ran = await asyncio.gather(*(shell.run(f"echo {n}; sleep 0.05; exit {n}") for n in range(40)))
    assert [(one.text, one.code) for one in ran] == [(str(n), n) for n in range(40)]


async def test_a_command_as_long_as_the_kernel_takes_runs(shell: Shell) -> None:
    script = "echo ok #".ljust(128 * 1024 - 1, "x")
    assert (await shell.run(script)).text == "ok"


async def test_a_command_too_long_is_refused_and_the_sandbox_lives_on(machine: Machine, shell: Shell) -> None:
    with pytest.raises(errors.PaddockError) as refused:
        await machine.spawn(ProcessSpec(new_process_id(), ["echo", "x" * (1 << 20)]))
    assert refused.value.status < 500
    assert (await shell.run("echo alive")).text == "alive"
