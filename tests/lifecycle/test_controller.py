"""The controller: each sandbox has one life, and only its owner can touch it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.accounts.quotas import Quota
from paddock.api.compat.e2b.control.lifecycle import lifecycle_of
from paddock.errors import (
    HostDiskFull,
    IdempotencyMismatch,
    Invalid,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    QuotaExceeded,
    SandboxBusy,
    SandboxFailed,
    SandboxNotFound,
    TemplateNotFound,
)
from paddock.lifecycle.idempotency import fingerprint
from paddock.models import ChangeUser, CreateSandbox, QuotaChange, State, TimeoutAction
from paddock.providers.base import Capacity
from paddock.providers.faults import FaultKind
from tests.support.waiting import PATIENCE_S
from tests.support.world import World


async def test_a_life_from_create_to_delete(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    assert await world.state(sandbox_id) is State.RUNNING
    await control.pause(world.alice, sandbox_id)
    assert await world.machines() == {sandbox_id: "paused"}
    await control.resume(world.alice, sandbox_id)
    assert await world.machines() == {sandbox_id: "running"}
    await control.delete(world.alice, sandbox_id)
    assert await world.machines() == {}
    assert await world.event_types(sandbox_id) == [
        "creating", "running", "pausing", "paused", "resuming", "running", "deleting", "deleted",
    ]  # fmt: skip


async def test_the_intent_is_written_before_the_provider_is_called(small_world: World) -> None:
    small_world.faults.add("create", FaultKind.HANG_BEFORE)
    creating = asyncio.create_task(small_world.create())
    while not (rows := (await small_world.context.controller.list(small_world.alice)).sandboxes):
        await asyncio.sleep(0.005)
    assert rows[0].state is State.CREATING
    assert await small_world.machines() == {}
    creating.cancel()


async def test_another_ones_sandbox_does_not_exist(small_world: World) -> None:
    control, bob = small_world.context.controller, small_world.bob
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    calls = [
        control.get(bob, sandbox_id),
        control.pause(bob, sandbox_id),
        control.resume(bob, sandbox_id),
        control.connect(bob, sandbox_id),
        control.delete(bob, sandbox_id),
        control.set_timeout(bob, sandbox_id, 60),
        control.use(bob, sandbox_id).__aenter__(),
        small_world.context.events.page(bob, sandbox_id, 0, 10),
        small_world.context.usage.of_sandbox(bob, sandbox_id),
    ]
    for call in calls:
        with pytest.raises(SandboxNotFound):
            await call
    assert (await control.list(bob)).sandboxes == []
    assert len((await control.list(small_world.admin)).sandboxes) == 1


@pytest.mark.parametrize(
    "sandbox_id", ["", "x", "alice_xyz", "../../etc", "alice_1234567g", "a\0b_12345678", "💥" * 99]
)
async def test_an_id_that_cannot_be_is_not_found(small_world: World, sandbox_id: str) -> None:
    with pytest.raises(SandboxNotFound):
        await small_world.context.controller.get(small_world.alice, sandbox_id)


async def test_any_use_wakes_a_paused_sandbox(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.context.controller.pause(world.alice, sandbox_id)
    async with world.context.controller.use(world.alice, sandbox_id) as use:
        assert use.sandbox.state is State.RUNNING
    assert await world.machines() == {sandbox_id: "running"}


async def test_many_uses_at_once_wake_it_once(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.context.controller.pause(world.alice, sandbox_id)

    async def use() -> None:
        async with world.context.controller.use(world.alice, sandbox_id):
            pass

    await asyncio.gather(*(use() for _ in range(20)))
    assert (await world.event_types(sandbox_id)).count("resuming") == 1


async def test_everything_at_once_on_one_sandbox_leaves_it_whole(world: World) -> None:
    control, alice = world.context.controller, world.alice
    sandbox_id = (await world.create()).sandbox.sandbox_id
    calls = [call(alice, sandbox_id) for _ in range(10) for call in (control.pause, control.resume, control.connect)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert (await world.machines())[sandbox_id] == (await world.state(sandbox_id)).value
    assert len(await world.events(sandbox_id)) == (await world.row(sandbox_id)).event_seq


async def test_a_slow_sandbox_delays_no_other(small_world: World) -> None:
    small_world.settings.provider_timeout = 2 * PATIENCE_S
    slow = (await small_world.create()).sandbox.sandbox_id
    small_world.faults.add("pause", FaultKind.HANG_BEFORE, sandbox_id=slow)
    hanging = asyncio.create_task(small_world.context.controller.pause(small_world.alice, slow))
    while await small_world.state(slow) is not State.PAUSING:
        await asyncio.sleep(0.005)
    async with asyncio.timeout(PATIENCE_S):
        other = (await small_world.create()).sandbox.sandbox_id
        await small_world.context.controller.pause(small_world.alice, other)
    assert not hanging.done()
    hanging.cancel()


async def test_a_client_that_hangs_up_does_not_stop_what_it_began(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    small_world.faults.add("pause", FaultKind.SLOW, seconds=0.2)
    asking = asyncio.create_task(small_world.context.controller.pause(small_world.alice, sandbox_id))
    while await small_world.state(sandbox_id) is not State.PAUSING:
        await asyncio.sleep(0.005)
    asking.cancel()
    while await small_world.state(sandbox_id) is State.PAUSING:
        await asyncio.sleep(0.01)
    assert await small_world.state(sandbox_id) is State.PAUSED


async def test_a_refused_create_is_an_error_and_leaves_nothing(world: World) -> None:
    world.faults.add("create", FaultKind.REFUSE)
    with pytest.raises(ProviderRefused):
        await world.create()
    assert await world.machines() == {}
    assert (await world.context.controller.list(world.alice)).sandboxes == []


async def test_a_create_of_unknown_outcome_that_was_answered_as_failed_is_ended(world: World) -> None:
    world.faults.add("create", FaultKind.FAIL_AFTER)
    with pytest.raises(ProviderUnavailable):
        await world.create()
    (row,) = (await world.context.controller.list(world.alice)).sandboxes
    assert row.state is State.DELETING and row.lease_owner is None and "create failed" in (row.reason or "")
    assert await world.machines() == {row.sandbox_id: "running"}
    await world.context.reconciler.run_once()
    assert (await world.state(row.sandbox_id), await world.machines()) == (State.DELETED, {})


async def test_one_that_can_be_asked_for_again_waits_for_that_and_is_then_ended(world: World) -> None:
    world.faults.add("create", FaultKind.FAIL_AFTER)
    with pytest.raises(ProviderUnavailable):
        await world.create(key="k1")
    (row,) = (await world.context.controller.list(world.alice)).sandboxes
    await world.context.reconciler.run_once()
    assert await world.state(row.sandbox_id) is State.CREATING
    await world.pass_time(61)
    await world.context.reconciler.run_once()
    assert (await world.state(row.sandbox_id), await world.machines()) == (State.DELETED, {})


async def test_a_create_that_never_succeeds_is_undone(small_world: World) -> None:
    small_world.faults.add("create", FaultKind.FAIL_AFTER, times=None)
    for _ in range(8):
        with pytest.raises(ProviderUnavailable):
            await small_world.create(key="k1")
        await small_world.pass_time(1)
    (row,) = (await small_world.context.controller.list(small_world.alice, states=[State.DELETED])).sandboxes
    assert "create failed" in (row.reason or "")
    assert await small_world.machines() == {}


async def test_a_provider_that_hangs_is_not_waited_for_for_ever(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    world = World(home, f"sqlite:///{home / 'paddock.db'}")
    await world.start()
    await world.make_accounts()
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.settings.provider_timeout = 0.5
    world.faults.add("pause", FaultKind.HANG_AFTER)
    with pytest.raises(ProviderTimeout):
        await world.context.controller.pause(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.PAUSING
    async with asyncio.timeout(PATIENCE_S):  # on a busy machine the timeout may strike again, without a fault
        while await world.state(sandbox_id) is State.PAUSING:
            await world.context.reconciler.run_once()
            await world.pass_time(61)
    assert await world.state(sandbox_id) is State.PAUSED
    await world.end()


async def test_a_refused_pause_leaves_it_running_with_its_deadline(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.REFUSE)
    with pytest.raises(ProviderRefused):
        await world.context.controller.pause(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.RUNNING
    assert await world.deadline(sandbox_id) is not None


async def test_the_next_request_goes_on_with_what_was_left_unfinished(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.FAIL)
    with pytest.raises(ProviderUnavailable):
        await world.context.controller.pause(world.alice, sandbox_id)
    async with world.context.controller.use(world.alice, sandbox_id):
        assert await world.machines() == {sandbox_id: "running"}


async def test_a_delete_goes_on_until_the_provider_agrees(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("delete", FaultKind.FAIL, times=3)
    with pytest.raises(ProviderUnavailable):
        await world.context.controller.delete(world.alice, sandbox_id)
    for _ in range(3):
        await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}


async def test_deleting_twice_is_a_success_and_using_the_dead_is_not(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await control.delete(world.alice, sandbox_id)
    await control.delete(world.alice, sandbox_id)
    assert (await control.get(world.alice, sandbox_id)).sandbox.state is State.DELETED
    for call in (control.pause, control.resume, control.connect):
        with pytest.raises(SandboxNotFound, match="deleted"):
            await call(world.alice, sandbox_id)
    with pytest.raises(SandboxNotFound):
        await control.set_timeout(world.alice, sandbox_id, 60)


async def test_a_sandbox_that_the_provider_lost_says_so_and_can_be_deleted(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    async with world.another_provider() as provider:
        await provider.delete(sandbox_id)
    with pytest.raises(SandboxFailed, match="no longer"):
        async with world.context.controller.use(world.alice, sandbox_id):
            pass
    assert await world.state(sandbox_id) is State.FAILED
    await world.context.controller.delete(world.alice, sandbox_id)


async def test_a_machine_found_paused_under_a_running_row_is_woken(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.provider.inner.pause(sandbox_id)
    async with world.context.controller.use(world.alice, sandbox_id):
        assert await world.machines() == {sandbox_id: "running"}


class TestIdempotency:
    async def test_the_same_key_never_creates_twice(self, world: World) -> None:
        seen = await asyncio.gather(*(world.create(key="k1") for _ in range(8)))
        assert len({each.sandbox.sandbox_id for each in seen}) == 1
        assert len(await world.machines()) == 1

    async def test_the_same_key_for_another_request_is_refused(self, world: World) -> None:
        await world.create(key="k1")
        with pytest.raises(IdempotencyMismatch):
            await world.create(key="k1", timeout=77)

    async def test_keys_of_different_owners_do_not_meet(self, world: World) -> None:
        mine, theirs = await world.create(key="k1"), await world.create(world.bob, key="k1")
        assert mine.sandbox.sandbox_id != theirs.sandbox.sandbox_id

    async def test_a_retry_after_an_unknown_outcome_gets_the_first_sandbox(self, world: World) -> None:
        world.faults.add("create", FaultKind.FAIL_AFTER)
        with pytest.raises(ProviderUnavailable):
            await world.create(key="k1")
        again = await world.create(key="k1")
        assert again.sandbox.state is State.RUNNING
        assert len(await world.machines()) == 1

    async def test_a_retry_of_a_refused_create_is_refused_again(self, world: World) -> None:
        world.faults.add("create", FaultKind.REFUSE)
        for _ in range(2):
            with pytest.raises(ProviderRefused):
                await world.create(key="k1")
        assert await world.machines() == {}

    async def test_a_full_disk_does_not_use_the_key_up(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        async def full(*_: object) -> None:
            raise HostDiskFull("Only 31 MB are free on the host's disk.")

        with monkeypatch.context() as patched, pytest.raises(HostDiskFull):
            patched.setattr(world.provider, "create", full)
            await world.create(key="k1")
        assert (await world.create(key="k1")).sandbox.state is State.RUNNING

    async def test_a_quota_refusal_does_not_use_the_key_up(self, world: World) -> None:
        await world.context.accounts.change_user(world.admin, "alice", ChangeUser(quota=QuotaChange(max_live=1)))
        first = await world.create()
        with pytest.raises(QuotaExceeded):
            await world.create(key="k1")
        await world.context.controller.delete(world.alice, first.sandbox.sandbox_id)
        assert (await world.create(key="k1")).sandbox.state is State.RUNNING


class TestQuotas:
    async def limit(self, world: World, **limits: float) -> None:
        await world.context.accounts.change_user(world.admin, "alice", ChangeUser(quota=QuotaChange(**limits)))  # type: ignore[arg-type]

    async def test_creates_at_once_cannot_share_the_last_place(self, world: World) -> None:
        await self.limit(world, max_live=3)
        outcomes = await asyncio.gather(*(world.create() for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 5
        assert len(await world.machines()) == 3

    @pytest.mark.parametrize(
        ("limits", "resources"), [({"max_cpu": 3}, {"cpu": 2}), ({"max_memory_mb": 1000}, {"memory_mb": 600})]
    )
    async def test_cpu_and_memory_are_counted(
        self, small_world: World, limits: dict[str, float], resources: dict[str, float]
    ) -> None:
        await self.limit(small_world, **limits)
        await small_world.create(resources=resources)
        with pytest.raises(QuotaExceeded, match="at once"):
            await small_world.create(resources=resources)

    @pytest.mark.parametrize("limits", [{"max_memory_mb": 1000}, {"max_processes": 1000}])
    async def test_a_paused_sandbox_keeps_the_memory_it_was_frozen_with(
        self, world: World, limits: dict[str, float]
    ) -> None:
        await self.limit(world, **limits)
        wish = {"memory_mb": 600, "pids": 600}
        frozen = (await world.create(resources=wish)).sandbox.sandbox_id
        await world.context.controller.pause(world.alice, frozen)
        with pytest.raises(QuotaExceeded, match="at once"):
            await world.create(resources=wish)
        # Its own share is not counted twice.
        await world.context.controller.resume(world.alice, frozen)

    async def test_a_sandbox_paused_with_its_files_alone_holds_its_disk_and_must_ask_for_memory(
        self, world: World
    ) -> None:
        await self.limit(world, max_memory_mb=1000, max_disk_mb=3000)
        wish = {"memory_mb": 600, "disk_mb": 1200}
        stopped = (await world.create(resources=wish)).sandbox.sandbox_id
        await lifecycle_of(world.context).pause(world.alice, stopped, keep_memory=False)
        other = (await world.create(resources=wish)).sandbox.sandbox_id
        with pytest.raises(QuotaExceeded, match="MB of memory"):
            await world.context.controller.resume(world.alice, stopped)
        await lifecycle_of(world.context).pause(world.alice, other, keep_memory=False)
        with pytest.raises(QuotaExceeded, match="MB of disk"):
            await world.create(resources=wish)
        await world.context.controller.resume(world.alice, stopped)
        await world.context.controller.delete(world.alice, other)
        await world.create(resources={"memory_mb": 16, "disk_mb": 1200})

    async def test_creates_and_resumes_at_once_cannot_share_the_last_memory(self, world: World) -> None:
        wish = {"memory_mb": 500}
        stopped = [(await world.create(resources=wish)).sandbox.sandbox_id for _ in range(3)]
        for sandbox_id in stopped:
            await lifecycle_of(world.context).pause(world.alice, sandbox_id, keep_memory=False)
        await self.limit(world, max_memory_mb=1500)
        resume = world.context.controller.resume
        outcomes = await asyncio.gather(
            *(world.create(resources=wish) for _ in range(3)),
            *(resume(world.alice, sandbox_id) for sandbox_id in stopped),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 3, outcomes

    async def test_paused_sandboxes_are_sandboxes_too(self, small_world: World) -> None:
        await self.limit(small_world, max_sandboxes=1, max_live=1)
        only = (await small_world.create()).sandbox.sandbox_id
        await small_world.context.controller.pause(small_world.alice, only)
        with pytest.raises(QuotaExceeded, match="may have 1 sandboxes"):
            await small_world.create()
        await small_world.context.controller.resume(small_world.alice, only)

    async def test_a_limit_that_was_lowered_takes_nothing_away(self, small_world: World) -> None:
        mine = (await small_world.create()).sandbox.sandbox_id
        await small_world.context.controller.pause(small_world.alice, mine)
        await self.limit(small_world, max_sandboxes=1, max_disk_mb=16, max_memory_mb=16, max_processes=4)
        await small_world.context.controller.resume(small_world.alice, mine)

    async def test_the_memory_of_all_users_has_a_limit_where_the_operator_sets_one(
        self, tmp_path: Path, database_url: str
    ) -> None:
        world = World(tmp_path, database_url, PADDOCK_MAX_TOTAL_MEMORY_MB=1100)
        await world.start()
        await world.make_accounts()
        users = [world.alice, world.bob, world.admin, world.alice]
        outcomes = await asyncio.gather(*(world.create(who) for who in users), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
        assert len(refused) == 2 and "together" in str(refused[0]), outcomes
        await world.end()

    async def test_a_sandbox_has_no_more_mcp_servers_than_its_creator_may_have(self, small_world: World) -> None:
        await self.limit(small_world, max_mcp_servers=1)
        servers = {name: {"command": "true"} for name in ("a", "b")}
        alice = replace(small_world.alice, quota=Quota(max_mcp_servers=1))
        with pytest.raises(QuotaExceeded, match="1 MCP servers"):
            await small_world.create(alice, mcp_servers=servers)

    async def test_a_paused_sandbox_gives_its_place_back_and_must_ask_for_it_again(self, small_world: World) -> None:
        await self.limit(small_world, max_live=1)
        control = small_world.context.controller
        first = (await small_world.create()).sandbox.sandbox_id
        await control.pause(small_world.alice, first)
        second = (await small_world.create()).sandbox.sandbox_id
        with pytest.raises(QuotaExceeded):
            await control.resume(small_world.alice, first)
        assert await small_world.state(first) is State.PAUSED
        await control.delete(small_world.alice, second)
        await control.resume(small_world.alice, first)


def has(monkeypatch: pytest.MonkeyPatch, world: World, **machine: Any) -> None:
    """Let the machine be as small as this."""

    async def capacity() -> Capacity:
        return Capacity(**machine)

    monkeypatch.setattr(world.provider, "capacity", capacity)


@pytest.mark.parametrize(
    ("field", "machine", "settings"),
    [
        ("cpu", {"cpu": 2.0}, {}),
        ("memory_mb", {"memory_mb": 2000}, {}),
        ("disk_mb", {"disk_mb": 2000}, {"PADDOCK_MAX_DISK_MB": 4000}),
        ("memory_mb", {"memory_mb": 8000}, {"PADDOCK_MAX_MEMORY_MB": 2000}),
        ("pids", {}, {"PADDOCK_MAX_PIDS": 2000}),
    ],
)
async def test_nobody_is_given_more_than_the_machine_has_or_the_operator_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, machine: dict[str, Any], settings: dict[str, int]
) -> None:
    world = World(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}", **settings)
    await world.start()
    await world.make_accounts()
    has(monkeypatch, world, **machine)
    most = 2 if field == "cpu" else 2000
    for who in (world.alice, world.admin):
        with pytest.raises(Invalid, match=f"at most {most}") as refused:
            await world.create(who, resources={field: most + 1})
        assert refused.value.details == {"field": f"resources.{field}", "max": most}
    made = await world.create(resources={field: most})
    assert getattr(made.sandbox, field) == most
    await world.end()


async def test_a_default_that_the_machine_cannot_give_is_made_smaller(
    small_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, small_world, memory_mb=100)
    assert (await small_world.create()).sandbox.memory_mb == 100


async def test_wishes_that_cannot_be_met_are_refused_before_anything_is_written(small_world: World) -> None:
    with pytest.raises(TemplateNotFound, match="host"):
        await small_world.create(template_id="nowhere")
    with pytest.raises(Invalid, match="no provider"):
        await small_world.create(provider="nobody")
    with pytest.raises(Invalid, match="86400"):
        await small_world.create(timeout=86_401)
    assert (await small_world.context.controller.list(small_world.admin)).sandboxes == []


async def test_a_sandbox_held_by_another_server_is_busy_not_broken(tmp_path_factory: pytest.TempPathFactory) -> None:
    from paddock.store import sandboxes, servers

    home = tmp_path_factory.mktemp("home")
    world = World(home, f"sqlite:///{home / 'paddock.db'}", PADDOCK_BUSY_WAIT=0.1)
    await world.start()
    await world.make_accounts()
    sandbox = (await world.create()).sandbox
    async with world.context.store.write() as connection:
        await servers.beat(connection, "other", world.clock.now())
        await sandboxes.change(connection, sandbox, state=State.PAUSING, lease_owner="other")
    with pytest.raises(SandboxBusy):
        await world.context.controller.resume(world.alice, sandbox.sandbox_id)
    # Once the other server is dead, whoever comes next takes over.
    await world.pass_time(world.settings.server_ttl + 1)
    await world.context.controller.resume(world.alice, sandbox.sandbox_id)
    assert await world.machines() == {sandbox.sandbox_id: "running"}
    await world.end()


async def test_timeouts_are_remembered_through_everything(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await control.set_timeout(world.alice, sandbox_id, 500, TimeoutAction.DELETE)
    await control.pause(world.alice, sandbox_id)
    await world.restart()
    seen = await world.context.controller.connect(world.alice, sandbox_id)
    assert (seen.sandbox.timeout, seen.sandbox.on_timeout) == (500, TimeoutAction.DELETE)
    assert seen.expires is not None
    assert seen.expires.due_at == pytest.approx(world.clock.now() + 500)


def test_a_request_is_known_again_whatever_the_order_of_its_keys() -> None:
    first = CreateSandbox(user_id="a", env={"A": "1", "B": "2"}, metadata={"x": 1, "y": 2})
    again = CreateSandbox(user_id="a", env={"B": "2", "A": "1"}, metadata={"y": 2, "x": 1})
    assert fingerprint("create", first) == fingerprint("create", again)
    assert fingerprint("create", first) != fingerprint("run", first)


async def test_an_id_that_is_taken_already_is_not_given_out_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await world.create()).sandbox.sandbox_id
    names = iter([first, first, "alice_0badcafe"])
    monkeypatch.setattr("paddock.lifecycle.creation.new_sandbox_id", lambda _user_id: next(names))
    assert (await world.create(key="k")).sandbox.sandbox_id == "alice_0badcafe"
    assert set(await world.machines()) == {first, "alice_0badcafe"}
