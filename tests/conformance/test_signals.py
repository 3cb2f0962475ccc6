"""Signals and timeouts: to the whole group, and how it ended is told truly."""

from __future__ import annotations

import asyncio
import signal

import pytest

from paddock import errors
from paddock.machine.base import ProcessStatus
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


async def test_sigterm_ends_a_process_and_is_told_as_a_shell_would(shell: Shell) -> None:
    process = await shell.start("echo up; exec sleep 1000")
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGTERM)
    ran = await shell.finish(process)
    assert (ran.code, ran.info.status) == (143, ProcessStatus.KILLED)


async def test_sigkill_is_137_and_killed(shell: Shell) -> None:
    process = await shell.start("trap '' TERM; echo up; while :; do sleep 0.01; done")
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGKILL)
    ran = await shell.finish(process)
    assert (ran.code, ran.info.status) == (137, ProcessStatus.KILLED)


async def test_a_trap_decides_the_exit_code(shell: Shell) -> None:
    process = await shell.start("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGTERM)
    ran = await shell.finish(process)
    assert (ran.code, ran.info.status) == (7, ProcessStatus.COMPLETED)
    assert ran.out.endswith(b"bye\n")


async def test_a_process_that_ignores_sigterm_stays_alive(shell: Shell) -> None:
    process = await shell.start("trap '' TERM; echo up; i=0; while :; do sleep 0.01; echo tick; done")
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGTERM)
    size = (await shell.machine.process(process)).stdout_size
    async with asyncio.timeout(PATIENCE_S):
        while (await shell.machine.process(process)).stdout_size < size + 20:
            await asyncio.sleep(0.01)
    assert (await shell.machine.process(process)).running


async def test_sigint_is_not_ignored(shell: Shell) -> None:
    process = await shell.start("trap 'exit 3' INT; echo up; while :; do sleep 0.01; done")
    await shell.until(process, b"up")
    await shell.machine.signal(process, signal.SIGINT)
    assert (await shell.finish(process)).code == 3


async def test_a_signal_reaches_the_children_too(shell: Shell) -> None:
    process = await shell.start("sleep 1000 & sleep 1000 & echo $!; wait")
    child = (await shell.until(process, b"\n")).decode().strip()
    assert (await shell.run(f"kill -0 {child}")).code == 0
    await shell.machine.signal(process, signal.SIGKILL)
    await shell.finish(process)
    async with asyncio.timeout(PATIENCE_S):
        while (await shell.run(f"kill -0 {child}")).code == 0:
            await asyncio.sleep(0.01)


async def test_a_signal_reaches_only_its_own_group(shell: Shell) -> None:
    victim, other = [await shell.start("exec sleep 1000") for _ in range(2)]
    await shell.machine.signal(victim, signal.SIGKILL)
    await shell.finish(victim)
    assert (await shell.machine.process(other)).running


async def test_a_process_stopped_and_continued_from_inside_still_reports_its_end(shell: Shell) -> None:
    process = await shell.start("echo up; read x; exit 6", stdin=True)
    await shell.until(process, b"up")
    pid = (await shell.machine.process(process)).pid
    await shell.run(f"kill -STOP {pid}")
    async with asyncio.timeout(PATIENCE_S):
        while "T" not in (await shell.run(f"cut -d' ' -f3 /proc/{pid}/stat")).text:
            await asyncio.sleep(0.01)
    assert (await shell.machine.process(process)).running
    await shell.run(f"kill -CONT {pid}")
    await shell.machine.write_stdin(process, b"\n")
    assert (await shell.finish(process)).code == 6


async def test_signalling_one_that_has_ended_says_so(shell: Shell) -> None:
    process = (await shell.run("true")).info.process_id
    with pytest.raises(errors.ProcessEnded):
        await shell.machine.signal(process, signal.SIGTERM)


async def test_a_number_that_is_no_signal_is_refused(shell: Shell) -> None:
    process = await shell.start("sleep 1000")
    with pytest.raises(errors.Invalid):
        await shell.machine.signal(process, 4711)


async def test_a_crash_is_told_as_a_signal(shell: Shell) -> None:
    ran = await shell.run("kill -SEGV $$")
    assert (ran.code, ran.info.status) == (139, ProcessStatus.KILLED)


async def test_the_hard_timeout_kills_the_group_and_is_told(shell: Shell) -> None:
    process = await shell.start("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 0.01; done", hard_timeout=0.3)
    ran = await shell.finish(process)
    assert (ran.code, ran.info.status) == (137, ProcessStatus.TIMED_OUT)
    async with asyncio.timeout(PATIENCE_S):
        while (await shell.run(f"kill -0 {ran.text}")).code == 0:
            await asyncio.sleep(0.01)


async def test_a_hard_timeout_too_short_to_begin_in_is_told_all_the_same(shell: Shell) -> None:
    ran = await shell.finish(await shell.start("sleep 1000", hard_timeout=0.0001))
    assert (ran.code, ran.info.status) == (137, ProcessStatus.TIMED_OUT)


async def test_one_that_ends_before_its_hard_timeout_is_not_touched(shell: Shell) -> None:
    process = await shell.start("exit 2", hard_timeout=30)
    ran = await shell.finish(process)
    assert (ran.code, ran.info.status) == (2, ProcessStatus.COMPLETED)


async def test_a_hard_timeout_set_before_a_restart_strikes_after_it(installation: Installation, shell: Shell) -> None:
    process = await shell.start("sleep 1000", hard_timeout=0.5)
    after = Shell(await (await installation.restart()).attach(shell.machine.sandbox_id))
    assert (await after.finish(process)).info.status is ProcessStatus.TIMED_OUT
