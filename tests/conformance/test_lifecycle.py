"""A provider's promises: idempotent by id, definite answers, nothing lost with the server."""

from __future__ import annotations

import asyncio

import pytest

from paddock import errors
from paddock.machine.base import ProcessStatus
from paddock.providers.base import MachineState, Provider, SandboxSpec
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


async def test_a_created_sandbox_is_running_and_found_with_its_labels(provider: Provider, spec: SandboxSpec) -> None:
    made = await provider.create(spec)
    assert made.state is MachineState.RUNNING
    assert made.sandbox_id == spec.sandbox_id
    assert made.reference
    assert dict(made.labels) == dict(spec.labels)
    assert await provider.inspect(spec.sandbox_id) == made
    assert await provider.list() == [made]


async def test_creating_twice_gives_the_first_one_back(provider: Provider, spec: SandboxSpec) -> None:
    first = await provider.create(spec)
    await Shell(await provider.attach(spec.sandbox_id)).put("/workspace/kept", "here")
    assert await provider.create(spec) == first
    assert await Shell(await provider.attach(spec.sandbox_id)).get("/workspace/kept") == b"here"
    assert len(await provider.list()) == 1


async def test_creating_at_the_same_time_makes_one(installation: Installation, spec: SandboxSpec) -> None:
    other = installation.build()
    await other.start()
    made = await asyncio.gather(*(p.create(spec) for p in (installation.provider, other) for _ in range(5)))
    assert len({found.reference for found in made}) == 1
    assert len(await other.list()) == 1
    await other.close()


async def test_an_unknown_template_is_refused(installation: Installation) -> None:
    with pytest.raises(errors.TemplateNotFound):
        await installation.provider.create(await installation.spec(template_id="no-such-template"))
    assert await installation.provider.list() == []


async def test_a_sandbox_that_never_was_is_definitely_not_there(provider: Provider) -> None:
    assert await provider.inspect("nobody_00000000") is None
    assert await provider.list() == []
    for step in (provider.attach, provider.pause, provider.resume):
        with pytest.raises(errors.SandboxNotFound):
            await step("nobody_00000000")
    await provider.delete("nobody_00000000")


@pytest.mark.parametrize("name", ["../escape", ".", "..", "a/b", "", ".hidden"])
async def test_a_name_that_is_a_path_finds_nothing(provider: Provider, spec: SandboxSpec, name: str) -> None:
    await provider.create(spec)
    assert await provider.inspect(name) is None
    await provider.delete(name)
    with pytest.raises(errors.SandboxNotFound):
        await provider.attach(name)
    assert len(await provider.list()) == 1


async def test_deleting_ends_everything_and_may_be_repeated(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    shell = Shell(await provider.attach(spec.sandbox_id))
    await shell.start("sleep 1000")
    await provider.delete(spec.sandbox_id)
    await provider.delete(spec.sandbox_id)
    assert await provider.inspect(spec.sandbox_id) is None
    assert await provider.list() == []
    with pytest.raises(errors.SandboxNotFound):
        await shell.start("true")
    with pytest.raises(errors.SandboxNotFound):
        await shell.get("/etc/passwd")


async def test_a_deleted_name_can_be_made_again_and_is_empty(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    await Shell(await provider.attach(spec.sandbox_id)).put("/workspace/old", "x")
    await provider.delete(spec.sandbox_id)
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    assert await machine.list_directory("/workspace") == []
    assert await machine.processes() == []


async def test_pausing_and_resuming_may_be_repeated(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    for _ in range(2):
        await provider.pause(spec.sandbox_id)
        found = await provider.inspect(spec.sandbox_id)
        assert found and found.state is MachineState.PAUSED
        assert dict(found.labels) == dict(spec.labels)
    for _ in range(2):
        await provider.resume(spec.sandbox_id)
        found = await provider.inspect(spec.sandbox_id)
        assert found and found.state is MachineState.RUNNING


async def test_a_paused_sandbox_cannot_be_entered(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    await provider.pause(spec.sandbox_id)
    with pytest.raises(errors.Conflict):
        await provider.attach(spec.sandbox_id)
    with pytest.raises(errors.Conflict):
        await Shell(machine).start("true")


async def test_a_process_stands_still_while_paused_and_goes_on_after(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    shell = Shell(await provider.attach(spec.sandbox_id))
    counter = await shell.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
    await shell.until(counter, b"3\n")
    before = (await shell.machine.process(counter)).stdout_size
    await provider.pause(spec.sandbox_id)
    await asyncio.sleep(1)  # time in which it would have written some three hundred bytes
    await provider.resume(spec.sandbox_id)
    after = (await shell.machine.process(counter)).stdout_size
    assert after - before < 100
    async with asyncio.timeout(PATIENCE_S):
        async for chunk in shell.machine.follow(counter, stdout_offset=after):
            assert chunk.offset == after
            break
    assert (await shell.machine.process(counter)).running


async def test_a_process_that_was_paused_still_reports_its_end(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    shell = Shell(await provider.attach(spec.sandbox_id))
    process = await shell.start("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done")
    await shell.until(process, b"up")
    await provider.pause(spec.sandbox_id)
    await provider.resume(spec.sandbox_id)
    await shell.machine.signal(process, 15)
    assert (await shell.finish(process)).code == 5


async def test_a_paused_sandbox_can_be_deleted(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    await Shell(await provider.attach(spec.sandbox_id)).start("sleep 1000")
    await provider.pause(spec.sandbox_id)
    await provider.delete(spec.sandbox_id)
    assert await provider.list() == []


async def test_a_rebuilt_provider_sees_the_same_sandboxes(installation: Installation) -> None:
    specs = [await installation.spec() for _ in range(3)]
    made = [await installation.provider.create(spec) for spec in specs]
    await installation.provider.pause(specs[1].sandbox_id)
    provider = await installation.restart()
    found = {one.sandbox_id: one for one in await provider.list()}
    assert set(found) == {spec.sandbox_id for spec in specs}
    assert found[specs[0].sandbox_id] == made[0]
    assert found[specs[1].sandbox_id].state is MachineState.PAUSED


async def test_a_command_goes_on_and_is_found_after_a_restart(installation: Installation, spec: SandboxSpec) -> None:
    await installation.provider.create(spec)
    before = Shell(await installation.provider.attach(spec.sandbox_id))
    process = await before.start("echo before; while [ ! -e go ]; do sleep 0.01; done; echo after; exit 4")
    await before.until(process, b"before")
    provider = await installation.restart()
    after = Shell(await provider.attach(spec.sandbox_id))
    assert [info.process_id for info in await after.machine.processes()] == [process]
    assert (await after.machine.process(process)).status is ProcessStatus.RUNNING
    await after.put("/workspace/go", "")
    ended = await after.finish(process)
    assert (ended.code, ended.out) == (4, b"before\nafter\n")


async def test_output_is_complete_after_the_provider_object_is_rebuilt(
    installation: Installation, spec: SandboxSpec
) -> None:
    await installation.provider.create(spec)
    before = Shell(await installation.provider.attach(spec.sandbox_id))
    ended = await before.run("seq 1 20000; echo oops >&2; exit 9")
    provider = await installation.restart()
    after = Shell(await provider.attach(spec.sandbox_id))
    again = await after.finish(ended.info.process_id)
    assert again == ended
    assert again.out == b"".join(b"%d\n" % n for n in range(1, 20001))


async def test_a_new_server_shares_the_old_ones_namespaces(installation: Installation, spec: SandboxSpec) -> None:
    await installation.provider.create(spec)
    before = Shell(await installation.provider.attach(spec.sandbox_id))
    pid = (await before.machine.process(await before.start("sleep 1000"))).pid
    after = Shell(await (await installation.restart()).attach(spec.sandbox_id))
    assert (await after.run(f"kill -0 {pid}")).code == 0


async def test_two_servers_at_once_agree(installation: Installation, spec: SandboxSpec) -> None:
    other = installation.build()
    await other.start()
    await installation.provider.create(spec)
    one = Shell(await installation.provider.attach(spec.sandbox_id))
    two = Shell(await other.attach(spec.sandbox_id))
    process, _ = await asyncio.gather(one.start("read line; echo got $line", stdin=True), two.start("sleep 1000"))
    await two.machine.write_stdin(process, b"word\n")
    assert (await two.finish(process)).text == "got word"
    assert (await one.finish(process)).text == "got word"
    await other.pause(spec.sandbox_id)
    found = await installation.provider.inspect(spec.sandbox_id)
    assert found and found.state is MachineState.PAUSED
    await other.close()


async def test_a_pause_without_memory_ends_the_processes_and_keeps_the_files(
    provider: Provider, spec: SandboxSpec
) -> None:
    await provider.create(spec)
    shell = Shell(await provider.attach(spec.sandbox_id))
    await shell.put("/workspace/kept", "here")
    await shell.start("sleep 1000")
    await provider.pause(spec.sandbox_id, keep_memory=False)
    found = await provider.inspect(spec.sandbox_id)
    assert found is not None
    assert found.state is MachineState.PAUSED
    with pytest.raises(errors.Conflict):
        await provider.attach(spec.sandbox_id)
    await provider.resume(spec.sandbox_id)
    shell = Shell(await provider.attach(spec.sandbox_id))
    assert await shell.get("/workspace/kept") == b"here"
    assert (await shell.run("pgrep -f '[s]leep 1000'")).code == 1


async def test_a_frozen_sandbox_can_still_lose_its_memory(provider: Provider, spec: SandboxSpec) -> None:
    await provider.create(spec)
    shell = Shell(await provider.attach(spec.sandbox_id))
    await shell.put("/workspace/kept", "here")
    await shell.start("sleep 1000")
    await provider.pause(spec.sandbox_id)
    for _ in range(2):  # as after a crash between the two
        await provider.pause(spec.sandbox_id, keep_memory=False)
    await provider.resume(spec.sandbox_id)
    shell = Shell(await provider.attach(spec.sandbox_id))
    assert await shell.get("/workspace/kept") == b"here"
    assert (await shell.run("pgrep -f '[s]leep 1000'")).code == 1


async def test_pausing_without_memory_what_never_was_is_refused(provider: Provider) -> None:
    with pytest.raises(errors.SandboxNotFound):
        await provider.pause("nobody_00000000", keep_memory=False)
