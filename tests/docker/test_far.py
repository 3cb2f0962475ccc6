"""Containers that share nothing with this machine: all goes through the engine, and comes back when that was cut."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.base import ProcessSpec
from paddock.providers.base import Mount
from paddock.providers.docker.address import Address
from paddock.providers.docker.host import chosen_far
from tests.docker import engine
from tests.docker.place import Meddler, Place
from tests.docker.tls_engine import TlsEngine
from tests.local.place import Inside

TRUNKS = "ps -eo pid,args | grep '[p]addock-agent trunk' | awk '{print $1}'"


def _use_other_volume(place: Place) -> str:
    """One that nobody has brought yet."""
    builder = place.provider._builder
    builder.agent_volume.volume = f"paddock-kit-test-{secrets.token_hex(6)}"
    builder.settings = replace(builder.settings, agent_volume=builder.agent_volume.volume)
    return builder.agent_volume.volume


async def _works(inside: Inside) -> bool:
    return await inside.says("sudo id -un; pwd") == "root\n/workspace"


@pytest.mark.parametrize(
    ("way", "by_socket", "runtime", "far"),
    [
        ("auto", True, "", False),
        ("auto", True, "crun", False),
        ("auto", True, "runsc", True),
        ("auto", True, "some-other", True),
        ("auto", False, "runc", True),
        ("far", True, "runc", True),
        ("near", False, "runc", False),
    ],
)
def test_the_way_is_near_where_both_are_on_one_kernel(way: str, by_socket: bool, runtime: str, far: bool) -> None:
    assert chosen_far(way, by_socket, runtime) is far


async def test_nothing_of_this_machine_is_in_it_and_nothing_is_published(far: Place) -> None:
    inside = await far.create()
    assert await _works(inside)
    found = engine.call("GET", f"/containers/{await far.container(inside.sandbox_id)}/json").json()
    assert {mount["Type"] for mount in found["Mounts"]} == {"volume"}
    assert not found["HostConfig"]["PortBindings"] and found["HostConfig"]["NetworkMode"] == "none"
    assert (await inside.run("touch /run/paddock/bin/x || rm -f /run/paddock/bin/sudo", user="root")).code != 0
    assert "far" in (await far.layer(inside.sandbox_id, "way to the agent")).detail


async def test_only_root_gets_to_its_agent_and_what_carries_the_way_has_no_power(far: Place) -> None:
    inside = await far.create()
    assert (await inside.run("cat /run/paddock/bin/token")).code != 0
    assert await inside.says("stat -c '%a %U' /run/paddock/bridge.sock") == "600 root"
    status = await inside.says(f"grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/$({TRUNKS})/status", user="root")
    assert status.split()[1::2] == ["0" * 16, "0" * 16, "1", "2"]


async def test_directories_of_this_machine_are_refused_by_an_engine_elsewhere(tmp_path: Path) -> None:
    engine.address()
    tcp = engine.far_address()
    if tcp.socket is not None:
        pytest.skip("PADDOCK_TEST_DOCKER_TCP does not say how to reach the engine by the network")
    place = Place(tmp_path, tcp)
    await place.provider.start()
    with pytest.raises(errors.ConfinementUnavailable, match="cannot be mounted by an engine elsewhere"):
        await place.create(mounts=(Mount(str(tmp_path), "/mnt/x"),))
    await place.clear()


async def test_what_is_brought_is_brought_once_and_again_when_it_was_removed(far: Place) -> None:
    volume = _use_other_volume(far)
    try:
        for _ in range(2):
            one, other = await asyncio.gather(far.create(), far.create())
            assert await _works(one) and await _works(other)
            for inside in (one, other):
                await far.provider.delete(inside.sandbox_id)
            assert engine.call("DELETE", f"/volumes/{volume}").status_code == 204
    finally:
        engine.call("DELETE", f"/volumes/{volume}")


async def test_one_that_was_brought_by_halves_is_made_whole(far: Place) -> None:
    volume = _use_other_volume(far)
    engine.call("POST", "/volumes/create", json={"Name": volume}).raise_for_status()
    inside = await far.create()
    assert await _works(inside)
    await far.provider.delete(inside.sandbox_id)
    engine.call("DELETE", f"/volumes/{volume}")


async def test_a_way_that_is_cut_from_inside_is_made_anew(far: Place) -> None:
    inside = await far.create()
    process = await inside.start("echo before; exec sleep 1000")
    await inside.until(process, b"before")
    await inside.run(f"kill -9 $({TRUNKS})", user="root")
    async with asyncio.timeout(60):
        while not await _answers(inside):
            await asyncio.sleep(0.05)
    assert (await inside.machine.process(process)).running


async def _answers(inside: Inside) -> bool:
    try:
        return await _works(inside)
    except errors.Unavailable:
        return False


async def test_near_and_far_live_side_by_side_and_each_is_reached_as_it_was_made(far: Place) -> None:
    distant = await far.create()
    near = Place(far.root.parent, engine.address(), way="near", runtime=engine.RUNTIME)
    await far.provider.close()
    far.provider = near.build()
    await far.provider.start()
    close_by = await far.create()
    assert await _works(await far.inside(distant.sandbox_id)) and await _works(close_by)
    assert await close_by.says(TRUNKS, user="root") == ""


async def test_a_read_only_root_is_no_hindrance(tmp_path: Path) -> None:
    place = Place(tmp_path, engine.far_address(), way="far", read_only=True)
    await place.provider.start()
    inside = await place.create()
    assert await _works(inside)
    assert (await inside.run("touch /usr/x", user="root")).code != 0
    await place.provider.pause(inside.sandbox_id, keep_memory=False)
    await place.provider.resume(inside.sandbox_id)
    assert await _works(await place.inside(inside.sandbox_id))
    await place.clear()


@pytest.fixture
async def shaky_far(meddler: Meddler, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path, meddler.address, way="far")
    await made.provider.start()
    yield made
    await made.clear()
    assert made.leftovers() == []


async def test_when_the_connection_to_the_engine_is_cut_the_next_use_makes_another(
    shaky_far: Place, meddler: Meddler
) -> None:
    inside = await shaky_far.create()
    process = await inside.start("echo before; exec sleep 1000")
    await inside.until(process, b"before")
    meddler.down(True)
    meddler.sever()
    with pytest.raises(errors.ProviderUnavailable):
        await shaky_far.provider.inspect(inside.sandbox_id)
    meddler.down(False)
    async with asyncio.timeout(60):
        while not await _answers(again := await shaky_far.inside(inside.sandbox_id)):
            await asyncio.sleep(0.05)
    assert (await again.machine.process(process)).running


@pytest.mark.parametrize("step", ["/exec", "/archive", "/volumes/create"])
async def test_a_create_that_is_cut_at_any_step_leaves_nothing_and_works_the_next_time(
    shaky_far: Place, meddler: Meddler, step: str
) -> None:
    volume = _use_other_volume(shaky_far)
    spec = shaky_far.spec()
    meddler.cut(step)
    try:
        await shaky_far.provider.create(spec)
    except errors.ProviderUnavailable:
        await shaky_far.provider.create(spec)
    assert await _works(await shaky_far.inside(spec.sandbox_id))
    assert shaky_far.containers() == [await shaky_far.container(spec.sandbox_id)]
    await shaky_far.provider.delete(spec.sandbox_id)
    engine.call("DELETE", f"/volumes/{volume}")


async def test_an_engine_by_tls_is_spoken_to_with_certificates_on_both_sides(tmp_path: Path) -> None:
    near = engine.address()
    async with TlsEngine.before(near, tmp_path) as tls:
        place = Place(tmp_path, tls.address)
        await place.provider.start()
        inside = await place.create()
        assert await _works(inside)
        spec = ProcessSpec(process_id="p_1", argv=["head", "-c", "3000000", "/dev/zero"])
        assert len((await inside.machine.run(spec, 60, limit=4_000_000))[1].data) == 3_000_000
        await place.clear()
        stranger = Place(tmp_path / "other", Address(None, tls.address.url, tls.of_a_stranger))
        with pytest.raises(errors.ProviderUnavailable):
            await stranger.provider.start()
        await stranger.provider.close()
