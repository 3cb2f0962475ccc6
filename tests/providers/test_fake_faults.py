"""Faults strike where and as often as told, before or after the deed, and leave no other trace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.base import MachineState, SandboxSpec
from paddock.providers.fake import FakeProvider, FaultKind, FaultRule, Faults
from tests.conformance.shell import Shell
from tests.providers.test_fake import run_server

SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host")
OTHER = SandboxSpec("tester_0000000b", "key", "owner", "tester", "host")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def provider(tmp_path: Path, faults: Faults) -> AsyncIterator[FakeProvider]:
    made = FakeProvider(tmp_path / "fake", faults=faults)
    await made.start()
    yield made
    faults.clear()
    for found in await made.list():
        await made.delete(found.sandbox_id)


async def test_failing_does_nothing_and_only_as_often_as_told(provider: FakeProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.FAIL, times=2)
    for _ in range(2):
        with pytest.raises(errors.ProviderUnavailable):
            await provider.create(SPEC)
        assert await provider.inspect(SPEC.sandbox_id) is None
    await provider.create(SPEC)
    assert await provider.inspect(SPEC.sandbox_id)


async def test_a_refusal_is_definite(provider: FakeProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.REFUSE)
    with pytest.raises(errors.ProviderRefused):
        await provider.create(SPEC)
    assert await provider.list() == []


async def test_failing_after_the_deed_leaves_it_done(provider: FakeProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.FAIL_AFTER)
    with pytest.raises(errors.ProviderUnavailable):
        await provider.create(SPEC)
    assert await provider.inspect(SPEC.sandbox_id)
    faults.add("pause", FaultKind.FAIL_AFTER)
    with pytest.raises(errors.ProviderUnavailable):
        await provider.pause(SPEC.sandbox_id)
    found = await provider.inspect(SPEC.sandbox_id)
    assert found and found.state is MachineState.PAUSED


@pytest.mark.parametrize(("kind", "done"), [(FaultKind.HANG_BEFORE, False), (FaultKind.HANG_AFTER, True)])
async def test_a_hang_ends_only_by_cancellation(
    provider: FakeProvider, faults: Faults, kind: FaultKind, done: bool
) -> None:
    faults.add("create", kind)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await provider.create(SPEC)
    assert (await provider.inspect(SPEC.sandbox_id) is not None) is done


async def test_slow_is_late_but_right(provider: FakeProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.SLOW, seconds=0.1)
    began = time.monotonic()
    await provider.create(SPEC)
    assert time.monotonic() - began >= 0.1
    assert await provider.inspect(SPEC.sandbox_id)


async def test_a_lie_by_omission(provider: FakeProvider, faults: Faults) -> None:
    await provider.create(SPEC)
    await provider.create(OTHER)
    faults.add("inspect", FaultKind.OMIT).add("list", FaultKind.OMIT)
    faults.add("list", FaultKind.OMIT, sandbox_id=SPEC.sandbox_id)
    assert await provider.inspect(SPEC.sandbox_id) is None
    assert await provider.inspect(SPEC.sandbox_id) is not None
    assert await provider.list() == []
    assert [found.sandbox_id for found in await provider.list()] == [OTHER.sandbox_id]
    assert len(await provider.list()) == 2


async def test_a_fault_may_be_for_one_sandbox_only(provider: FakeProvider, faults: Faults) -> None:
    await provider.create(SPEC)
    await provider.create(OTHER)
    faults.add("pause", FaultKind.FAIL, times=None, sandbox_id=SPEC.sandbox_id)
    await provider.pause(OTHER.sandbox_id)
    for _ in range(3):
        with pytest.raises(errors.ProviderUnavailable):
            await provider.pause(SPEC.sandbox_id)


async def test_chance_is_honoured_and_repeatable(tmp_path: Path) -> None:
    async def hits(seed: int) -> list[bool]:
        faults = Faults([FaultRule("inspect", FaultKind.FAIL, times=None, probability=0.5)], seed=seed)
        provider = FakeProvider(tmp_path / "fake", faults=faults)
        outcome = []
        for _ in range(60):
            try:
                await provider.inspect("x")
                outcome.append(False)
            except errors.ProviderUnavailable:
                outcome.append(True)
        return outcome

    assert await hits(1) == await hits(1)
    assert 10 < sum(await hits(1)) < 50


async def test_rules_end_with_their_context(provider: FakeProvider, faults: Faults) -> None:
    with faults:
        faults.add("list", FaultKind.FAIL, times=None)
        with pytest.raises(errors.ProviderUnavailable):
            await provider.list()
    assert await provider.list() == []


async def test_every_step_of_the_machine_can_fail(provider: FakeProvider, faults: Faults) -> None:
    await provider.create(SPEC)
    machine = await provider.attach(SPEC.sandbox_id)
    shell = Shell(machine)
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "spawn": lambda: shell.start("true"),
        "processes": machine.processes,
        "read_file": lambda: shell.get("/etc/passwd"),
        "write_file": lambda: shell.put("/workspace/file", "x"),
        "list_directory": lambda: machine.list_directory("/"),
        "dial": lambda: machine.dial(80),
        "stats": machine.stats,
        "watch": lambda: _enter(machine.watch("/workspace")),
        "follow": lambda: _drain(machine.follow("p_x")),
    }
    for step, act in steps.items():
        faults.add(step, FaultKind.FAIL)
        with pytest.raises(errors.ProviderUnavailable, match=step):
            await act()
    assert await machine.list_directory("/workspace") == []


async def _enter(context: AbstractAsyncContextManager[object]) -> None:
    async with context:
        pass


async def _drain(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def test_a_file_of_rules_steers_a_running_provider(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    provider = FakeProvider(tmp_path / "fake", faults=Faults.from_file(file))
    await provider.start()
    await provider.list()
    file.write_text(json.dumps({"rules": [{"step": "list", "kind": "refuse", "times": None}]}))
    for _ in range(2):
        with pytest.raises(errors.ProviderRefused):
            await provider.list()
    file.write_text(json.dumps({"rules": [{"step": "list", "kind": "fail"}]}))
    os.utime(file, ns=(1, 1))
    with pytest.raises(errors.ProviderUnavailable):
        await provider.list()
    assert await provider.list() == []
    file.unlink()
    assert await provider.list() == []


@pytest.mark.parametrize(("kind", "done"), [("crash_before", False), ("crash_after", True)])
async def test_a_crash_takes_the_whole_server_down(
    provider: FakeProvider, tmp_path: Path, kind: str, done: bool
) -> None:
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"rules": [{"step": "create", "kind": kind}]}))
    crashed = run_server(
        """
        async def main():
            provider = FakeProvider(Path(sys.argv[1]), faults=Faults.from_file(Path(sys.argv[2])))
            await provider.start()
            try:
                await provider.create(SPEC)
            finally:
                print("survived")
        asyncio.run(main())
        """,
        tmp_path / "fake",
        file,
    )
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    assert crashed.stdout == ""
    assert (await provider.inspect(SPEC.sandbox_id) is not None) is done


async def test_a_crash_between_spawning_and_answering_loses_nothing(provider: FakeProvider, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"rules": [{"step": "spawn", "kind": "crash_after"}]}))
    crashed = run_server(
        """
        async def main():
            provider = FakeProvider(Path(sys.argv[1]), faults=Faults.from_file(Path(sys.argv[2])))
            await provider.start()
            await provider.create(SPEC)
            machine = await provider.attach(SPEC.sandbox_id)
            await machine.spawn(ProcessSpec("p_1", ["sh", "-c", "echo ran >> runs; echo out"]))
        asyncio.run(main())
        """,
        tmp_path / "fake",
        file,
    )
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    await shell.start("echo ran >> runs", process_id="p_1")
    assert (await shell.finish("p_1")).out == b"out\n"
    assert await shell.get("/workspace/runs") == b"ran\n"
