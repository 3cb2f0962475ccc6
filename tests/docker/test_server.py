"""A server on containers: what clients are told when the engine, or somebody at it, does what it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.clock import SystemClock
from paddock.errors import SandboxFailed
from paddock.ids import new_process_id
from paddock.machine.base import ProcessSpec
from paddock.models import State
from paddock.providers.docker import DockerProvider
from paddock.server.context import ServerContext, build_context
from tests.docker import engine
from tests.docker.place import Place
from tests.support.world import World


class Contained(World):
    def another_house(self) -> ServerContext:
        provider = DockerProvider(self.home / "docker", address=engine.address(), images=[engine.DEBIAN])
        return build_context(self.settings, clock=self.clock, providers={"docker": provider})

    def containers(self) -> list[str]:
        return Place(self.home, engine.address()).containers()

    async def says(self, sandbox_id: str, command: str) -> str:
        async with self.context.controller.use(self.alice, sandbox_id) as use:
            spec = ProcessSpec(process_id=new_process_id(), argv=["/bin/sh", "-c", command], cwd="/workspace")
            _, out, _ = await use.machine.run(spec, 30)
            return out.data.decode().strip()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Contained]:
    engine.address()
    database = f"sqlite:///{tmp_path / 'paddock.db'}"
    limits = {"PADDOCK_PROVIDER_TIMEOUT": 60, "PADDOCK_BUSY_WAIT": 60}
    made = Contained(tmp_path, database, SystemClock(), **limits)
    made.settings.sandbox_provider = "docker"
    await made.start()
    await made.make_accounts()
    yield made
    for sandbox in (await made.context.controller.list(made.admin)).sandboxes:
        await made.context.controller.delete(made.admin, sandbox.sandbox_id)
    await made.stop()
    assert made.containers() == []


async def test_a_container_that_somebody_removed_is_a_failed_sandbox_with_the_reason(world: Contained) -> None:
    sandbox = (await world.create()).sandbox
    assert sandbox.provider == "docker"
    engine.call("DELETE", f"/containers/{sandbox.reference}", params={"force": 1})
    await world.context.reconciler.sweep()
    row = await world.row(sandbox.sandbox_id)
    assert (row.state, bool(row.reason)) == (State.FAILED, True)
    with pytest.raises(SandboxFailed):
        await world.says(sandbox.sandbox_id, "echo nobody")


async def test_a_stopped_container_wakes_for_the_next_command(world: Contained) -> None:
    """As after a restart of the engine, or of the host."""
    sandbox_id = (await world.create()).sandbox.sandbox_id
    assert await world.says(sandbox_id, "echo kept > file; cat file") == "kept"
    engine.call("POST", f"/containers/{(await world.row(sandbox_id)).reference}/kill")
    engine.call("POST", f"/containers/{(await world.row(sandbox_id)).reference}/wait")
    assert await world.says(sandbox_id, "cat file") == "kept"
    assert await world.state(sandbox_id) is State.RUNNING


async def test_a_machine_without_a_row_is_adopted_with_its_owner(world: Contained, tmp_path: Path) -> None:
    """The database was lost; the containers and the folder are there."""
    sandbox = (await world.create(timeout=77)).sandbox
    async with world.context.store.write() as connection:
        await connection.exec_driver_sql("delete from sandboxes")
    await world.context.reconciler.sweep()
    row = await world.row(sandbox.sandbox_id)
    assert (row.owner_id, row.timeout, row.provider, row.state) == ("alice", 77, "docker", State.RUNNING)


async def test_what_was_deleted_while_the_server_was_gone_is_removed(world: Contained) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    async with world.context.store.write() as connection:
        gone_at = world.clock.now() - 10
        await connection.exec_driver_sql(f"update sandboxes set state = 'deleted', deleted_at = {gone_at}")
    await world.context.reconciler.sweep()
    assert world.containers() == []
    assert await world.state(sandbox_id) is State.DELETED
