"""Egress, isolation and mounts: asked for, refused, remembered, changed while the sandbox lives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.errors import (
    Conflict,
    Forbidden,
    Invalid,
    ProviderUnavailable,
    SandboxNotFound,
    Unsupported,
)
from paddock.lifecycle.provider_calls import spec_of
from paddock.lifecycle.reconciler import _from_labels
from paddock.models import EgressRules, Isolation, State
from paddock.providers.base import (
    IsolationLevel,
    IsolationReport,
    Layer,
    MachineInfo,
    MachineState,
    Mount,
    Provider,
    SandboxSpec,
)
from paddock.providers.faults import FaultKind
from paddock.providers.local import LocalProvider
from paddock.store import sandboxes
from paddock.store.tables import deadlines as deadline_table
from paddock.store.tables import sandboxes as sandbox_table
from tests.support import local_home
from tests.support.world import World


class Willing(LocalProvider):
    """A provider that gives whatever is asked for: what is tested here is how the wish gets to the provider."""

    best = IsolationLevel.STANDARD
    asked: SandboxSpec

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        type(self).asked = spec
        if spec.isolation is not None and spec.isolation.rank > self.best.rank:
            raise Unsupported(f"This machine gives {self.best}, not {spec.isolation}.")
        mode = EgressMode.PROXY if spec.egress.mode is EgressMode.FULL else spec.egress.mode
        return await super().create(replace(spec, isolation=None, mounts=(), egress=replace(spec.egress, mode=mode)))

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        return IsolationReport(self.best, (Layer("cgroup", True, "v2"), Layer("disk", False, "mount with prjquota")))


class WillingWorld(World):
    def make_provider(self) -> Provider:
        return Willing(local_home.lay_out(self.home), self.clock)


@pytest.fixture
async def willing(tmp_path: Path, database_url: str) -> AsyncIterator[World]:
    world = WillingWorld(tmp_path, database_url)
    await world.start()
    await world.make_accounts()
    yield world
    await world.end()


async def test_what_is_asked_for_reaches_the_provider_and_the_row(willing: World) -> None:
    wish = {
        "egress": {"mode": "full", "allow": ["example.org"], "deny": ["*.bad.test:443"]},
        "isolation": "standard",
        "mounts": [{"source": "/srv/project", "target": "/workspace", "read_only": True}],
    }
    sandbox_id = (await willing.create(willing.admin, **wish)).sandbox.sandbox_id
    row = await willing.row(sandbox_id)
    assert row.egress == wish["egress"]
    assert (row.isolation, list(row.mounts)) == (Isolation.STANDARD, wish["mounts"])
    assert spec_of(row) == Willing.asked
    assert Willing.asked.mounts == (Mount("/srv/project", "/workspace", True),)
    assert Willing.asked.isolation is IsolationLevel.STANDARD


async def test_the_settings_speak_where_the_request_does_not(willing: World) -> None:
    willing.settings.default_egress = "none"
    willing.settings.min_isolation = "basic"
    row = (await willing.create()).sandbox
    assert (row.egress["mode"], row.isolation) == ("none", Isolation.BASIC)
    row = (await willing.create(egress={"allow": ["a.test"]}, isolation="standard")).sandbox
    assert (row.egress, row.isolation) == ({"mode": "none", "allow": ["a.test"], "deny": []}, Isolation.STANDARD)


async def test_nobody_gets_less_isolation_than_the_operator_insists_on(willing: World) -> None:
    willing.settings.min_isolation = "standard"
    assert (await willing.create(isolation="basic")).sandbox.isolation is Isolation.STANDARD
    willing.settings.min_isolation = "strict"
    with pytest.raises(Unsupported, match="gives standard, not strict"):
        await willing.create(isolation="basic")


async def test_a_level_that_the_machine_cannot_give_is_refused_at_once_and_leaves_nothing(willing: World) -> None:
    with pytest.raises(Unsupported):
        await willing.create(isolation="hardened", key="again")
    assert (await willing.context.controller.list(willing.admin)).sandboxes == []
    undone = (await willing.context.controller.list(willing.admin, states=[State.DELETED])).sandboxes
    assert [row.attempts for row in undone] == [0] and "gives standard" in (undone[0].reason or "")
    assert await willing.machines() == {}


async def test_mounts_are_for_admins(willing: World) -> None:
    mounts = [{"source": "/srv", "target": "/workspace"}]
    with pytest.raises(Forbidden, match="admin"):
        await willing.create(willing.alice, mounts=mounts)
    assert (await willing.create(willing.admin, mounts=mounts)).sandbox.mounts


async def test_a_rule_that_is_none_is_refused_before_anything_is_made(world: World) -> None:
    with pytest.raises(Invalid):
        await world.create(egress={"allow": ["http://example.org/path"]})
    assert (await world.context.controller.list(world.admin, states=list(State))).sandboxes == []


async def test_the_report_says_what_there_is_and_what_was_asked_for(willing: World) -> None:
    sandbox_id = (await willing.create(isolation="basic")).sandbox.sandbox_id
    isolated = await willing.context.confinement.isolation(willing.alice, sandbox_id)
    assert (isolated.report.level, isolated.requested) == (IsolationLevel.STANDARD, Isolation.BASIC)
    await willing.context.controller.pause(willing.alice, sandbox_id)
    await willing.context.confinement.isolation(willing.alice, sandbox_id)
    assert await willing.state(sandbox_id) is State.PAUSED, "looking does not wake"


async def test_only_its_owner_sees_or_changes_what_stands_around_a_sandbox(willing: World) -> None:
    sandbox_id = (await willing.create()).sandbox.sandbox_id
    confinement = willing.context.confinement
    for call in (
        confinement.isolation(willing.bob, sandbox_id),
        confinement.egress(willing.bob, sandbox_id),
        confinement.set_egress(willing.bob, sandbox_id, EgressRules(allow=["*"])),
    ):
        with pytest.raises(SandboxNotFound):
            await call


async def test_a_changed_list_is_in_force_remembered_and_on_record(world: World) -> None:
    sandbox_id = (await world.create(egress={"allow": ["a.test"], "deny": ["b.test"]})).sandbox.sandbox_id
    changed = EgressRules(allow=["c.test"])
    report = await world.context.confinement.set_egress(world.alice, sandbox_id, changed)
    assert (report.policy.allow, report.policy.deny) == (("c.test",), ("b.test",))
    await world.restart()
    assert (await world.context.confinement.egress(world.alice, sandbox_id)).policy == report.policy
    assert (await world.row(sandbox_id)).egress == {"mode": "proxy", "allow": ["c.test"], "deny": ["b.test"]}
    last = (await world.events(sandbox_id))[-1]
    assert (last.type, last.data) == ("egress.changed", {"allow": ["c.test"], "deny": ["b.test"]})


async def test_a_sandbox_keeps_its_mode(world: World) -> None:
    sandbox_id = (await world.create(egress="none")).sandbox.sandbox_id
    confinement = world.context.confinement
    await confinement.set_egress(world.alice, sandbox_id, EgressRules(mode="none", allow=["a.test"]))
    with pytest.raises(Conflict, match="'none' and keeps it"):
        await confinement.set_egress(world.alice, sandbox_id, EgressRules(mode="full"))
    assert (await confinement.egress(world.alice, sandbox_id)).policy.allow == ("a.test",)


async def test_a_change_that_the_provider_did_not_take_is_not_remembered(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("set_egress", FaultKind.FAIL)
    with pytest.raises(ProviderUnavailable):
        await world.context.confinement.set_egress(world.alice, sandbox_id, EgressRules(allow=["a.test"]))
    assert (await world.row(sandbox_id)).egress["allow"] == []
    assert "egress.changed" not in [event.type for event in await world.events(sandbox_id)]


async def test_a_change_cut_short_by_a_crash_is_found_again_at_the_provider(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("set_egress", FaultKind.FAIL_AFTER)
    with pytest.raises(ProviderUnavailable):
        await world.context.confinement.set_egress(world.alice, sandbox_id, EgressRules(allow=["a.test"]))
    assert (await world.context.confinement.egress(world.alice, sandbox_id)).policy.allow == ("a.test",)
    assert (await world.row(sandbox_id)).egress["allow"] == ["a.test"]


async def test_changes_at_once_leave_the_row_and_the_provider_of_one_mind(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    confinement = world.context.confinement
    await asyncio.gather(
        *(confinement.set_egress(world.alice, sandbox_id, EgressRules(allow=[f"n{n}.test"])) for n in range(8)),
        *(confinement.set_egress(world.alice, sandbox_id, EgressRules(deny=[f"n{n}.test"])) for n in range(8)),
    )
    row = await world.row(sandbox_id)
    assert len(row.egress["allow"]) == len(row.egress["deny"]) == 1
    async with world.another_provider() as provider:
        assert (await provider.egress(sandbox_id)).policy.to_json() == row.egress


async def test_of_the_deleted_there_is_nothing_to_say(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.context.controller.delete(world.alice, sandbox_id)
    for call in (
        world.context.confinement.egress(world.alice, sandbox_id),
        world.context.confinement.set_egress(world.alice, sandbox_id, EgressRules(allow=[])),
    ):
        with pytest.raises(SandboxNotFound, match="was deleted"):
            await call


async def test_a_lost_row_is_written_again_with_what_stood_around_the_sandbox(willing: World) -> None:
    wish = {
        "egress": {"mode": "none"},
        "isolation": "basic",
        "mounts": [{"source": "/srv", "target": "/data", "read_only": False}],
    }
    before = (await willing.create(willing.admin, **wish)).sandbox
    await willing.context.confinement.set_egress(willing.admin, before.sandbox_id, EgressRules(allow=["later.test"]))
    async with willing.context.store.write() as connection:
        await connection.execute(sandbox_table.delete())
        await connection.execute(deadline_table.delete())
    await willing.context.reconciler.run_once()
    after = await willing.row(before.sandbox_id)
    assert (after.isolation, list(after.mounts)) == (before.isolation, list(before.mounts))
    assert after.egress == {"mode": "none", "allow": ["later.test"], "deny": []}


async def test_what_an_admin_opened_is_in_the_labels_and_a_lost_row_has_it_again(willing: World) -> None:
    opened = {"private": ["10.1.0.0/16", "db.corp.test"]}
    sandbox_id = (await willing.create(willing.admin, egress=opened)).sandbox.sandbox_id
    row = await willing.row(sandbox_id)
    found = MachineInfo(sandbox_id, MachineState.RUNNING, "x", 0.0, sandboxes.labels_of(row))
    adopted = _from_labels("local", found, 0.0, willing.settings)
    assert adopted is not None and adopted.egress["private"] == opened["private"]
    assert spec_of(adopted).egress.private == ("10.1.0.0/16", "db.corp.test")


async def test_a_row_that_is_older_than_the_provider_opens_nothing_again(willing: World) -> None:
    """As after an adoption: labels are of the time when the sandbox was made."""
    made = await willing.create(willing.alice)
    sandbox_id = made.sandbox.sandbox_id
    before = EgressPolicy(private=("10.0.0.0/8",)).to_json()
    async with willing.context.store.write() as connection:
        await sandboxes.patch(connection, sandbox_id, egress=before)
    report = await willing.context.confinement.set_egress(willing.alice, sandbox_id, EgressRules(deny=["a.test"]))
    assert report.policy.private == ()


@pytest.mark.parametrize("nonsense", [{"egress": 5}, {"isolation": "perfect"}, {"mounts": [{"x": 1}]}])
async def test_labels_that_do_not_fit_are_not_believed(world: World, nonsense: dict[str, object]) -> None:
    seen = (await world.create()).sandbox
    kept = json.loads(sandboxes.labels_of(seen)["paddock.sandbox"]) | nonsense
    found = MachineInfo(seen.sandbox_id, MachineState.RUNNING, "r", 0.0, {"paddock.sandbox": json.dumps(kept)})
    assert _from_labels("local", found, 0.0, world.settings) is None


async def test_labels_from_before_there_was_a_choice_are_still_read(world: World) -> None:
    seen = (await world.create()).sandbox
    kept = json.loads(sandboxes.labels_of(seen)["paddock.sandbox"])
    old = {name: value for name, value in kept.items() if name not in ("egress", "isolation", "mounts")}
    found = MachineInfo(seen.sandbox_id, MachineState.RUNNING, "r", 0.0, {"paddock.sandbox": json.dumps(old)})
    row = _from_labels("local", found, 0.0, world.settings)
    assert row is not None and (row.egress["mode"], row.isolation, list(row.mounts)) == ("proxy", None, [])
