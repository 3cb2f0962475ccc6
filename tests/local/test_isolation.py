"""The isolation report says what is so, and a sandbox that asks for more than there is is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import IsolationLevel
from paddock.providers.local import uids
from tests.local.place import PRIVILEGED, Inside, Place, as_ordinary_user, as_root

NAMES = (
    "user namespace",
    "mount, pid, network, ipc, uts and cgroup namespaces",
    "system call filter",
    "no new privileges",
    "no capabilities outside",
    "own uid range",
    "memory limit",
    "CPU limit",
    "process limit",
    "freezer",
    "disk limit",
    "kernel of its own",
)


async def test_the_report_names_every_layer_and_says_something_about_each(place: Place, inside: Inside) -> None:
    report = await place.provider.isolation(inside.sandbox_id)
    assert tuple(layer.name for layer in report.layers) == NAMES
    assert all(layer.detail for layer in report.layers)
    assert all(layer.active for layer in report.layers[:5])
    assert not report.layers[-1].active


async def test_the_level_follows_from_the_layers(place: Place, inside: Inside) -> None:
    report = await place.provider.isolation(inside.sandbox_id)
    active = {layer.name for layer in report.layers if layer.active}
    groups = {"memory limit", "CPU limit", "process limit", "freezer"} <= active
    strict = {"own uid range", "disk limit"} <= active
    expected = IsolationLevel.BASIC if not groups else IsolationLevel.STRICT if strict else IsolationLevel.STANDARD
    assert report.level is expected
    assert ("own uid range" in active) is PRIVILEGED


async def test_up_to_the_level_of_the_machine_everything_is_given(place: Place, inside: Inside) -> None:
    level = (await place.provider.isolation(inside.sandbox_id)).level
    for asked in IsolationLevel:
        if asked.rank <= level.rank:
            assert await (await place.create(isolation=asked)).says("echo here") == "here"


async def test_what_is_above_the_level_of_the_machine_is_refused_and_nothing_is_made(
    place: Place, inside: Inside
) -> None:
    level = (await place.provider.isolation(inside.sandbox_id)).level
    for asked in IsolationLevel:
        if asked.rank > level.rank:
            spec = place.spec(isolation=asked)
            with pytest.raises(errors.ConfinementUnavailable) as refused:
                await place.provider.create(spec)
            assert asked.value in refused.value.message and level.value in refused.value.message
            assert refused.value.details == {"level": level.value, "asked": asked.value}
            assert await place.provider.inspect(spec.sandbox_id) is None
    assert len(await place.provider.list()) == 1


@as_ordinary_user
async def test_an_ordinary_user_is_told_what_would_give_more(place: Place, inside: Inside) -> None:
    assert "root" in (await place.layer(inside.sandbox_id, "own uid range")).detail
    assert "root" in (await place.layer(inside.sandbox_id, "disk limit")).detail
    for name in ("memory limit", "CPU limit", "process limit", "freezer"):
        layer = await place.layer(inside.sandbox_id, name)
        assert layer.active or "Delegate=yes" in layer.detail


async def test_a_report_of_nobody_is_not_found(place: Place) -> None:
    with pytest.raises(errors.SandboxNotFound):
        await place.provider.isolation("nobody_0")


async def test_every_namespace_is_another_one_than_the_hosts(place: Place, inside: Inside) -> None:
    kinds = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
    theirs = await inside.says(" && ".join(f"readlink /proc/self/ns/{kind}" for kind in kinds))
    ours = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    assert ours.isdisjoint(theirs.splitlines()) and len(theirs.splitlines()) == len(kinds)


@as_root
async def test_two_sandboxes_have_no_id_in_common(place: Place, inside: Inside) -> None:
    other = await place.create()
    first, second = [int((await one.says("cat /proc/self/uid_map")).split()[1]) for one in (inside, other)]
    assert abs(first - second) >= 65_536 and min(first, second) >= 0x7000_0000
    running = place.running(inside.sandbox_id)
    assert Path(f"/proc/{running.pid}").stat().st_uid in {first, 0}
    status = Path(f"/proc/{running.pid}/status").read_text()
    assert f"Uid:\t{first}\t{first}\t{first}\t{first}" in status


@as_root
async def test_a_sandbox_that_gets_other_ids_when_it_is_started_again_has_its_files(
    place: Place, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk they are written without the offset."""
    await inside.says("echo mine > /workspace/f && sudo sh -c 'echo roots > /etc/g'")
    await place.end(inside.sandbox_id)
    first = place.running(inside.sandbox_id).uid_slot
    assert first is not None
    monkeypatch.setattr(uids.secrets, "randbelow", lambda slots: (first + 1) % slots)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("stat -c '%U %G' /workspace/f /etc/g") == "user user\nroot root"
    assert place.running(inside.sandbox_id).uid_slot not in {first, None}


async def test_full_egress_without_its_tool_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.providers.local.host.shutil.which", lambda *_, **__: None)
    await place.restart()
    with pytest.raises(errors.ConfinementUnavailable, match="nft"):
        await place.provider.create(place.spec(egress=EgressPolicy(EgressMode.FULL)))
    assert await (await place.create()).says("echo here") == "here"
