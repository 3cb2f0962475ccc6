"""The provider daytona, with Daytona's own SDK, against a second Paddock that plays Daytona."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import MachineState, Resources
from paddock.providers.vendor.provider import VendorProvider
from tests.support.waiting import PATIENCE_S
from tests.vendor.account import Account
from tests.vendor.road import Trouble, a_road_to
from tests.vendor.test_faults import a_spec, run

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(900)]


@pytest.fixture
def daytona(daytona_account: Account) -> Account:
    return daytona_account


@pytest.fixture
async def provider(daytona: Account, tmp_path: Path) -> AsyncIterator[VendorProvider]:
    made = daytona.provider(tmp_path)
    await made.start()
    yield made
    for found in await made.list():
        await made.delete(found.sandbox_id)
    await made.close()


async def test_a_sandbox_lives_its_whole_life_at_daytona(
    provider: VendorProvider, daytona: Account, tmp_path: Path
) -> None:
    spec = a_spec(template_id="default", env={"GREETING": "hello"}, labels={"name": "märchen"})
    found = await provider.create(spec)
    assert (found.state, found.labels) == (MachineState.RUNNING, {"name": "märchen"})
    assert (await provider.create(spec)).reference == found.reference
    assert await run(provider, spec.sandbox_id, "echo $GREETING; id -un") == "hello\nuser"
    assert await run(provider, spec.sandbox_id, "id -un", user="root") == "root"
    await run(provider, spec.sandbox_id, "echo kept > /workspace/file")

    await provider.pause(spec.sandbox_id)
    with pytest.raises(errors.Conflict, match="paused"):
        await provider.attach(spec.sandbox_id)
    restarted = daytona.provider(tmp_path)
    await restarted.start()
    assert [one.state for one in await restarted.list()] == [MachineState.PAUSED]
    await restarted.resume(spec.sandbox_id)
    assert await run(restarted, spec.sandbox_id, "cat /workspace/file") == "kept"
    await restarted.pause(spec.sandbox_id, keep_memory=False)
    await restarted.resume(spec.sandbox_id)
    assert await run(restarted, spec.sandbox_id, "cat /workspace/file") == "kept"
    assert await restarted._lease.renew()
    await restarted.delete(spec.sandbox_id)
    await restarted.close()
    assert await provider.inspect(spec.sandbox_id) is None
    await provider.delete(spec.sandbox_id)


async def test_daytonas_refusals_are_told_apart(daytona: Account, provider: VendorProvider, tmp_path: Path) -> None:
    with pytest.raises(errors.ProviderRefused, match="DAYTONA_API_KEY"):
        await daytona.provider(tmp_path, api_key="dtn_wrong").start()
    with pytest.raises(errors.TemplateNotFound):
        await provider.create(a_spec(template_id="no-such-snapshot"))
    for policy in (EgressPolicy(deny=("example.org",)), EgressPolicy(allow=("example.org:443",))):
        with pytest.raises(errors.Unsupported):
            await provider.create(a_spec(template_id="default", egress=policy))
    quiet = a_spec(template_id="default", egress=EgressPolicy(EgressMode.NONE))
    await provider.create(quiet)
    assert await run(provider, quiet.sandbox_id, "echo up") == "up"


async def test_a_machine_from_an_image_has_the_size_that_was_asked_for(
    provider: VendorProvider, daytona: Account
) -> None:
    spec = a_spec(template_id="image:host", resources=Resources(cpu=2, memory_mb=1500, disk_mb=3 << 10))
    found = await provider.create(spec)
    assert await run(provider, spec.sandbox_id, "echo made") == "made"
    with daytona.owner() as owner:
        [there] = [one for one in owner.iter_sandboxes() if one.key == found.reference]
    assert (there.resources.cpu, there.resources.memory_mb, there.resources.disk_mb) == (2, 2 << 10, 3 << 10)
    with pytest.raises(errors.PaddockError, match="no-such-image"):
        await provider.create(a_spec(template_id="image:no-such-image"))


async def test_a_daytona_that_says_later_is_asked_later(daytona: Account, tmp_path: Path) -> None:
    async with a_road_to(daytona.server.url) as road:
        provider = daytona.provider(tmp_path, api_url=f"{road.url}/daytona/api")
        road.troubles = [Trouble("^GET /daytona/api/sandbox", times=2, status=429, headers={"Retry-After": "1"})]
        assert await provider.list() == []
        road.troubles = [Trouble("^GET /daytona/api/sandbox", status=500)]
        with pytest.raises(errors.ProviderUnavailable):
            await provider.list()
        road.closed = True
        with pytest.raises(errors.ProviderUnavailable):
            await provider.inspect("tester_00000000")
        await asyncio.wait_for(provider.close(), PATIENCE_S)
