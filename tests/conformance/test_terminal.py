"""Terminals: a real one, of the size asked for, that anyone can type into."""

from __future__ import annotations

import signal

import pytest

from paddock import errors
from paddock.machine.base import ProcessStatus, Stream, TerminalSize
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell

SIZE = TerminalSize(rows=33, cols=101)


async def test_a_terminal_is_a_terminal_of_the_size_asked_for(shell: Shell) -> None:
    process = await shell.start("test -t 0 && test -t 1 && test -t 2 && stty size; tty; echo $TERM", terminal=SIZE)
    ran = await shell.finish(process)
    assert ran.info.terminal
    size, name, kind = ran.text.split("\r\n")
    assert size == "33 101"
    assert name.startswith("/dev/pts/")
    assert kind


async def test_all_output_of_a_terminal_is_on_stdout(shell: Shell) -> None:
    process = await shell.start("echo out; echo err >&2", terminal=SIZE)
    ran = await shell.finish(process)
    assert (ran.out, ran.err) == (b"out\r\nerr\r\n", b"")
    assert (await shell.machine.read_output(process, Stream.STDERR)).data == b""


async def test_resizing_is_seen_inside(shell: Shell) -> None:
    process = await shell.start("trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.01; done", terminal=SIZE)
    await shell.until(process, b"up")
    await shell.machine.resize(process, TerminalSize(rows=50, cols=132))
    assert (await shell.finish(process)).text.endswith("50 132")


async def test_what_is_typed_arrives_and_is_echoed(shell: Shell) -> None:
    process = await shell.start("read line; echo got $line", terminal=SIZE)
    await shell.machine.write_stdin(process, b"word\n")
    assert (await shell.finish(process)).out == b"word\r\ngot word\r\n"


async def test_control_c_interrupts_what_runs_in_front(shell: Shell) -> None:
    process = await shell.start("trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.01; done", terminal=SIZE)
    await shell.until(process, b"up")
    await shell.machine.write_stdin(process, b"\x03")
    assert (await shell.finish(process)).code == 4


async def test_closing_the_input_of_a_terminal_is_its_end_of_file(shell: Shell) -> None:
    process = await shell.start("cat > /dev/null; echo done", terminal=SIZE)
    await shell.machine.close_stdin(process)
    assert (await shell.finish(process)).text.endswith("done")


async def test_a_shell_on_a_terminal_has_job_control(shell: Shell) -> None:
    process = await shell.start("exec bash --norc -i", terminal=SIZE, env={"PS1": r"[\#]> "})
    await shell.until(process, b"[1]> ")
    await shell.machine.write_stdin(process, b"sh -c 'echo in $((1+1)) front; exec sleep 1000'\n")
    await shell.until(process, b"in 2 front")
    await shell.machine.write_stdin(process, b"\x03")
    await shell.until(process, b"[2]> ")
    await shell.machine.write_stdin(process, b"echo a$((1+1))b; exit 5\n")
    ran = await shell.finish(process)
    assert b"a2b" in ran.out
    assert b"no job control" not in ran.out
    assert ran.code == 5


async def test_a_large_screen_of_output_is_complete(shell: Shell) -> None:
    process = await shell.start("seq 1 50000", terminal=SIZE)
    assert (await shell.finish(process)).out == b"".join(b"%d\r\n" % n for n in range(1, 50001))


async def test_a_terminal_is_ended_by_a_signal_like_any_other(shell: Shell) -> None:
    process = await shell.start("echo up; exec sleep 1000", terminal=SIZE)
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGKILL)
    assert (await shell.finish(process)).info.status is ProcessStatus.KILLED


async def test_resizing_what_is_no_terminal_is_refused(shell: Shell) -> None:
    process = await shell.start("sleep 1000")
    with pytest.raises(errors.Conflict):
        await shell.machine.resize(process, SIZE)


async def test_resizing_one_that_has_ended_says_so(shell: Shell) -> None:
    process = await shell.start("true", terminal=SIZE)
    await shell.finish(process)
    with pytest.raises(errors.ProcessEnded):
        await shell.machine.resize(process, SIZE)


async def test_after_a_restart_a_terminal_is_either_whole_or_known_to_be_gone(
    installation: Installation, shell: Shell
) -> None:
    process = await shell.start("echo up; read line; echo got $line", terminal=SIZE)
    await shell.until(process, b"up")
    after = Shell(await (await installation.restart()).attach(shell.machine.sandbox_id))
    if (await after.machine.process(process)).running:
        await after.machine.write_stdin(process, b"word\n")
        assert b"got word" in (await after.finish(process)).out
    else:
        assert (await after.machine.process(process)).status in (ProcessStatus.LOST, ProcessStatus.KILLED)
