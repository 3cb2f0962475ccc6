"""Faults strike where and as often as told, before or after the deed, and leave no other trace."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.base import Machine, ProcessSpec
from paddock.providers.base import MachineState, Provider, Resources, SandboxSpec, Shape
from paddock.providers.faults import FaultKind, FaultRule, Faults, FaultyMachine, FaultyProvider, with_faults
from paddock.providers.local import LocalProvider
from tests.conformance.shell import Shell
from tests.support import local_home
from tests.support.waiting import PATIENCE_S

SMALL = Resources(disk_mb=64)
SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host", resources=SMALL)
OTHER = SandboxSpec("tester_0000000b", "key", "owner", "tester", "host", resources=SMALL)
SHAPE = Shape("host", 64)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def provider(tmp_path: Path, faults: Faults) -> AsyncIterator[FaultyProvider]:
    made = with_faults(LocalProvider(local_home.lay_out(tmp_path)), faults)
    await made.start()
    yield made
    faults.clear()
    await local_home.delete_all(made)
    await made.close()
    await local_home.clear(tmp_path)


def run_server(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A server process of its own, that may die in the middle."""
    head = """
        import asyncio, sys
        from pathlib import Path
        from paddock.machine.base import ProcessSpec
        from paddock.providers.base import Resources, SandboxSpec
        from paddock.providers.faults import Faults, with_faults
        from paddock.providers.local import LocalProvider
        SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host", resources=Resources(disk_mb=64))
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )


@pytest.mark.parametrize(("base", "kind"), [(Provider, FaultyProvider), (Machine, FaultyMachine)])
def test_every_method_of_any_provider_and_machine_goes_through_it(base: type, kind: type) -> None:
    public = [name for name, found in vars(base).items() if inspect.isfunction(found) and not name.startswith("_")]
    assert [name for name in public if name not in vars(kind)] == []
    assert not kind.__abstractmethods__  # type: ignore[attr-defined]


async def test_failing_does_nothing_and_only_as_often_as_told(provider: FaultyProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.FAIL, times=2)
    for _ in range(2):
        with pytest.raises(errors.ProviderUnavailable):
            await provider.create(SPEC)
        assert await provider.inspect(SPEC.sandbox_id) is None
    await provider.create(SPEC)
    assert await provider.inspect(SPEC.sandbox_id)


async def test_a_refusal_is_definite(provider: FaultyProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.REFUSE)
    with pytest.raises(errors.ProviderRefused):
        await provider.create(SPEC)
    assert await provider.list() == []


async def test_failing_after_the_deed_leaves_it_done(provider: FaultyProvider, faults: Faults) -> None:
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
    provider: FaultyProvider, faults: Faults, kind: FaultKind, done: bool
) -> None:
    faults.add("create", kind)
    creating = asyncio.create_task(provider.create(SPEC))
    async with asyncio.timeout(PATIENCE_S):
        while done and await provider.inspect(SPEC.sandbox_id) is None:
            await asyncio.sleep(0.01)
    assert await asyncio.wait({creating}, timeout=0.2) == (set(), {creating})
    creating.cancel()
    await asyncio.wait({creating})
    assert creating.cancelled()
    assert (await provider.inspect(SPEC.sandbox_id) is not None) is done


async def test_slow_is_late_but_right(provider: FaultyProvider, faults: Faults) -> None:
    faults.add("create", FaultKind.SLOW, seconds=0.1)
    began = time.monotonic()
    await provider.create(SPEC)
    assert time.monotonic() - began >= 0.1
    assert await provider.inspect(SPEC.sandbox_id)


async def test_a_lie_by_omission(provider: FaultyProvider, faults: Faults) -> None:
    await provider.create(SPEC)
    await provider.create(OTHER)
    faults.add("inspect", FaultKind.OMIT).add("list", FaultKind.OMIT)
    faults.add("list", FaultKind.OMIT, sandbox_id=SPEC.sandbox_id)
    assert await provider.inspect(SPEC.sandbox_id) is None
    assert await provider.inspect(SPEC.sandbox_id) is not None
    assert await provider.list() == []
    assert [found.sandbox_id for found in await provider.list()] == [OTHER.sandbox_id]
    assert len(await provider.list()) == 2


async def test_a_fault_may_be_for_one_sandbox_only(provider: FaultyProvider, faults: Faults) -> None:
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
        provider = with_faults(LocalProvider(local_home.lay_out(tmp_path)), faults)
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


async def test_rules_end_with_their_context(provider: FaultyProvider, faults: Faults) -> None:
    with faults:
        faults.add("list", FaultKind.FAIL, times=None)
        with pytest.raises(errors.ProviderUnavailable):
            await provider.list()
    assert await provider.list() == []


async def test_every_step_of_the_machine_can_fail(provider: FaultyProvider, faults: Faults) -> None:
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
        "run": lambda: shell.machine.run(ProcessSpec("p_y", ["true"])),
        "begin": lambda: _drain(machine.begin(ProcessSpec("p_z", ["true"]))),
    }
    for step, act in steps.items():
        faults.add(step, FaultKind.FAIL)
        with pytest.raises(errors.ProviderUnavailable, match=step):
            await act()
    assert await machine.list_directory("/workspace") == []
    assert await machine.processes() == []


async def test_a_rule_about_spawn_strikes_at_every_call_that_starts_a_process(
    provider: FaultyProvider, faults: Faults
) -> None:
    await provider.create(SPEC)
    machine = await provider.attach(SPEC.sandbox_id)
    faults.add("spawn", FaultKind.FAIL, times=2)
    with pytest.raises(errors.ProviderUnavailable):
        await machine.run(ProcessSpec("p_1", ["true"]))
    with pytest.raises(errors.ProviderUnavailable):
        await _drain(machine.begin(ProcessSpec("p_1", ["true"])))
    info, _, _ = await machine.run(ProcessSpec("p_1", ["true"]), PATIENCE_S)
    assert info.exit_code == 0


async def test_a_rule_about_attach_closes_the_short_way_too(provider: FaultyProvider, faults: Faults) -> None:
    await provider.create(SPEC)
    there = provider.attached_machine(SPEC.sandbox_id)
    assert isinstance(there, FaultyMachine) and there.sandbox_id == SPEC.sandbox_id
    faults.add("attach", FaultKind.FAIL)
    assert provider.attached_machine(SPEC.sandbox_id) is None
    with pytest.raises(errors.ProviderUnavailable):
        await provider.attach(SPEC.sandbox_id)
    assert provider.attached_machine(SPEC.sandbox_id) is not None


@pytest.mark.parametrize(("kind", "made"), [(FaultKind.FAIL, 0), (FaultKind.REFUSE, 0), (FaultKind.FAIL_AFTER, 1)])
async def test_faults_strike_at_warming_too(
    provider: FaultyProvider, faults: Faults, kind: FaultKind, made: int
) -> None:
    faults.add("warm", kind)
    with pytest.raises(errors.Unavailable):
        await provider.warm(SHAPE)
    assert sum((await provider.warmed()).values()) == made


async def _enter(context: AbstractAsyncContextManager[object]) -> None:
    async with context:
        pass


async def _drain(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def test_a_file_of_rules_steers_a_running_provider(provider: FaultyProvider, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    provider = with_faults(provider.inner, Faults.from_file(file))
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
    provider: FaultyProvider, tmp_path: Path, kind: str, done: bool
) -> None:
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"rules": [{"step": "create", "kind": kind}]}))
    crashed = run_server(
        """
        async def main():
            provider = with_faults(LocalProvider(Path(sys.argv[1])), Faults.from_file(Path(sys.argv[2])))
            await provider.start()
            try:
                await provider.create(SPEC)
            finally:
                print("survived")
        asyncio.run(main())
        """,
        tmp_path / "local",
        file,
    )
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    assert crashed.stdout == ""
    assert (await provider.inspect(SPEC.sandbox_id) is not None) is done


async def test_a_crash_between_spawning_and_answering_loses_nothing(provider: FaultyProvider, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"rules": [{"step": "spawn", "kind": "crash_after"}]}))
    crashed = run_server(
        """
        async def main():
            provider = with_faults(LocalProvider(Path(sys.argv[1])), Faults.from_file(Path(sys.argv[2])))
            await provider.start()
            await provider.create(SPEC)
            machine = await provider.attach(SPEC.sandbox_id)
            await machine.spawn(ProcessSpec("p_1", ["sh", "-c", "echo ran >> runs; echo out"]))
        asyncio.run(main())
        """,
        tmp_path / "local",
        file,
    )
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    await shell.start("echo ran >> runs", process_id="p_1")
    assert (await shell.finish("p_1")).out == b"out\n"
    assert await shell.get("/workspace/runs") == b"ran\n"
