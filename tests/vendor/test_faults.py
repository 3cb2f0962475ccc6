"""Machines at a vendor when things go wrong: nothing is made twice, nothing is taken for gone, nothing is lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.machine.base import ProcessSpec, ProcessStatus
from paddock.providers.base import MachineState, Mount, Resources, SandboxSpec
from paddock.providers.registry import NoProvider, default_provider
from paddock.providers.vendor.provider import VendorProvider
from paddock.settings import Settings
from tests.support.waiting import PATIENCE_S
from tests.vendor.account import Account
from tests.vendor.road import Road, Trouble, a_road_to

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]

CREATE = r"^POST /e2b/v2/sandboxes "


def a_spec(**changes: Any) -> SandboxSpec:
    given = {
        "sandbox_id": f"tester_{secrets.token_hex(4)}",
        "key": "k",
        "owner_id": "owner",
        "user_id": "tester",
        "template_id": "base",
        "resources": Resources(cpu=1.0, memory_mb=256),
    }
    return SandboxSpec(**{**given, **changes})


@pytest.fixture
async def road(account: Account) -> AsyncIterator[Road]:
    async with a_road_to(account.server.url) as found:
        yield found


@pytest.fixture
async def provider(account: Account, road: Road, tmp_path: Path) -> AsyncIterator[VendorProvider]:
    made = account.provider(tmp_path, api_url=f"{road.url}/e2b", sandbox_url=road.url)
    await made.start()
    yield made
    road.troubles.clear()
    road.closed = False
    for found in await made.list():
        await made.delete(found.sandbox_id)
    await made.close()


def made_at(account: Account, sandbox_id: str) -> list[str]:
    """The other Paddock's own names of the machines that are this sandbox."""
    with account.owner() as client:
        return [
            one.sandbox_id
            for one in client.iter_sandboxes()
            if one.metadata.get("paddock-sandbox") == sandbox_id and one.status in ("running", "paused")
        ]


async def the_only_one(account: Account, sandbox_id: str) -> str:
    (found,) = await asyncio.to_thread(made_at, account, sandbox_id)
    return found


async def run(provider: VendorProvider, sandbox_id: str, command: str, user: str = "user") -> str:
    machine = await provider.attach(sandbox_id)
    spec = ProcessSpec(secrets.token_hex(8), ["sh", "-c", command], cwd="/", user=user)
    _, stdout, stderr = await machine.run(spec, PATIENCE_S)
    return (stdout.data + stderr.data).decode().strip()


async def test_a_key_that_is_not_accepted_is_named(account: Account, tmp_path: Path) -> None:
    with pytest.raises(errors.ProviderRefused, match="E2B_API_KEY"):
        await account.provider(tmp_path, api_key="e2b_" + "0" * 40).start()


def test_a_server_without_a_key_is_told_so_before_it_starts() -> None:
    with pytest.raises(NoProvider, match="E2B_API_KEY"):
        default_provider(Settings(SANDBOX_PROVIDER="e2b", E2B_API_KEY="", _env_file=None))


async def test_a_server_starts_while_the_vendor_does_not_answer(
    provider: VendorProvider, account: Account, road: Road, tmp_path: Path
) -> None:
    spec = a_spec()
    await provider.create(spec)
    road.closed = True
    restarted = account.provider(tmp_path, api_url=f"{road.url}/e2b", sandbox_url=road.url)
    await restarted.start()
    with pytest.raises(errors.ProviderUnavailable):
        await restarted.list()
    road.closed = False
    assert await run(restarted, spec.sandbox_id, "echo up") == "up"
    await restarted.close()


async def test_too_many_requests_are_waited_out(provider: VendorProvider, road: Road) -> None:
    road.troubles = [Trouble(CREATE, times=2, status=429, headers={"Retry-After": "1"})]
    spec = a_spec()
    await provider.create(spec)
    assert await run(provider, spec.sandbox_id, "echo up") == "up"
    assert sum(line.startswith("POST /e2b/v2/sandboxes ") for line in road.seen) == 3


async def test_too_many_requests_for_ever_are_a_429_and_nothing_was_made(provider: VendorProvider, road: Road) -> None:
    road.troubles = [Trouble(CREATE, status=429, headers={"Retry-After": "0"})]
    spec = a_spec()
    with pytest.raises(errors.TooManyRequests):
        await provider.create(spec)
    road.troubles.clear()
    assert await provider.inspect(spec.sandbox_id) is None
    await provider.create(spec)  # and later it is made: a no is not remembered for ever
    assert await run(provider, spec.sandbox_id, "echo up") == "up"


async def test_a_create_that_was_cut_in_the_middle_makes_one_machine(
    provider: VendorProvider, road: Road, account: Account
) -> None:
    road.troubles = [Trouble(CREATE, times=1)]
    spec = a_spec()
    with pytest.raises(errors.ProviderUnavailable):
        await provider.create(spec)
    found = await provider.create(spec)
    assert found.state is MachineState.RUNNING
    await the_only_one(account, spec.sandbox_id)


@pytest.mark.parametrize("status", [500, 502, 403])
async def test_what_cannot_be_read_is_unknown_and_never_gone(provider: VendorProvider, road: Road, status: int) -> None:
    spec = a_spec()
    await provider.create(spec)
    road.troubles = [Trouble(r"^GET /e2b/", status=status, headers={"Should-Retry": "false"})]
    for ask in (provider.list, lambda: provider.inspect(spec.sandbox_id), lambda: provider.pause(spec.sandbox_id)):
        with pytest.raises(errors.ProviderUnavailable):
            await ask()
    road.troubles.clear()
    road.closed = True
    with pytest.raises(errors.ProviderUnavailable):
        await provider.list()
    road.closed = False
    assert [found.sandbox_id for found in await provider.list()] == [spec.sandbox_id]


async def test_a_command_goes_on_when_the_network_is_cut(provider: VendorProvider, road: Road) -> None:
    spec = a_spec()
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    await machine.spawn(ProcessSpec("p", ["sh", "-c", "echo one; read x; echo $x; exit 7"], "/", stdin=True))
    waiting = asyncio.create_task(machine.wait("p", PATIENCE_S))
    await asyncio.sleep(0)
    road.cut()
    await machine.usage()  # what may be asked twice is, on a new connection
    await machine.write_stdin("p", b"two\n")
    assert (await waiting).exit_code == 7
    assert b"".join([chunk.data async for chunk in machine.follow("p")]) == b"one\ntwo\n"


async def test_a_machine_deleted_behind_our_back_is_gone(provider: VendorProvider, account: Account) -> None:
    spec = a_spec()
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    with account.owner() as client:
        await asyncio.to_thread(client.delete_sandbox, await the_only_one(account, spec.sandbox_id))
    with pytest.raises(errors.SandboxNotFound):
        await asyncio.wait_for(_until_it_fails(machine), PATIENCE_S)
    assert await provider.inspect(spec.sandbox_id) is None
    await provider.delete(spec.sandbox_id)
    with pytest.raises(errors.SandboxNotFound):
        await provider.attach(spec.sandbox_id)


async def _until_it_fails(machine: Any) -> None:
    """The first call may still hear that its connection was cut."""
    while True:
        try:
            await machine.usage()
        except errors.ProviderUnavailable:
            await asyncio.sleep(0.1)


async def test_a_machine_that_nobody_looks_after_is_paused_and_wakes_again(
    provider: VendorProvider, account: Account, tmp_path: Path
) -> None:
    spec = a_spec()
    found = await provider.create(spec)
    await run(provider, spec.sandbox_id, "echo kept > /workspace/file")
    await account.vendor().renew(found.reference, 1)
    async with asyncio.timeout(PATIENCE_S):
        while (now := await provider.inspect(spec.sandbox_id)) and now.state is not MachineState.PAUSED:
            await asyncio.sleep(0.1)
    restarted = account.provider(tmp_path)
    await restarted.start()
    with pytest.raises(errors.Conflict, match="paused"):
        await restarted.attach(spec.sandbox_id)
    await restarted.resume(spec.sandbox_id)
    assert await run(restarted, spec.sandbox_id, "cat /workspace/file") == "kept"
    await restarted.close()


async def test_a_pause_does_not_wait_for_the_goodbye_of_a_machine_that_is_asleep(
    provider: VendorProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.machine.agent.bridge._CLOSE_SECONDS", 2 * PATIENCE_S)
    spec = a_spec()
    await provider.create(spec)
    assert await run(provider, spec.sandbox_id, "echo up") == "up"
    async with asyncio.timeout(PATIENCE_S):
        await provider.pause(spec.sandbox_id)
    await provider.resume(spec.sandbox_id)
    assert await run(provider, spec.sandbox_id, "echo up again") == "up again"


async def test_leases_are_renewed(provider: VendorProvider, account: Account) -> None:
    from e2b import AsyncSandbox

    spec = a_spec()
    found = await provider.create(spec)
    options = {"api_key": account.server.key, "api_url": f"{account.server.url}/e2b"}
    await account.vendor().renew(found.reference, 300)
    before = (await AsyncSandbox.get_info(found.reference, **options)).end_at
    assert await provider._lease.renew()
    assert (await AsyncSandbox.get_info(found.reference, **options)).end_at > before


async def test_an_agent_that_died_is_brought_again(provider: VendorProvider) -> None:
    spec = a_spec()
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    await machine.spawn(ProcessSpec("long", ["sleep", "1000"], "/"))
    await machine.spawn(ProcessSpec("killer", ["sh", "-c", "read x; kill -9 $PPID"], "/", user="root", stdin=True))
    with suppress(errors.ProviderUnavailable):  # nobody may be left to say that it was heard
        await machine.write_stdin("killer", b"now\n")
    async with asyncio.timeout(PATIENCE_S):
        while (await _status(machine, "long")) is not ProcessStatus.LOST:
            await asyncio.sleep(0.1)
    assert await run(provider, spec.sandbox_id, "echo up") == "up"


async def _status(machine: Any, process_id: str) -> ProcessStatus | None:
    try:
        return (await machine.process(process_id)).status
    except errors.ProviderUnavailable:
        return None


async def test_machines_outlive_a_crash_of_the_vendors_server(provider: VendorProvider, account: Account) -> None:
    spec = a_spec()
    await provider.create(spec)
    machine = await provider.attach(spec.sandbox_id)
    await machine.spawn(ProcessSpec("p", ["sh", "-c", "read x; echo $x"], "/", stdin=True))
    await asyncio.to_thread(account.server.restart)
    await machine.write_stdin("p", b"still here\n")
    assert (await machine.wait("p", PATIENCE_S)).exit_code == 0
    assert b"".join([chunk.data async for chunk in machine.follow("p")]) == b"still here\n"


async def test_two_installations_with_one_account_leave_each_other_alone(
    provider: VendorProvider, account: Account, tmp_path: Path
) -> None:
    spec = a_spec()
    await provider.create(spec)
    other = account.provider(tmp_path / "another")
    await other.start()
    assert await other.list() == []
    assert await other.inspect(spec.sandbox_id) is None
    await other.delete(spec.sandbox_id)
    await other.close()
    assert await run(provider, spec.sandbox_id, "echo up") == "up"


async def test_what_cannot_be_given_is_refused_and_leaves_nothing(provider: VendorProvider) -> None:
    from paddock.providers.base import IsolationLevel

    wishes: list[dict[str, Any]] = [
        {"mounts": (Mount("/tmp", "/mnt"),)},
        {"isolation": IsolationLevel.BASIC},  # of a service that only speaks E2B's protocol nothing is known
    ]
    for wish in wishes:
        with pytest.raises(errors.Unsupported):
            await provider.create(a_spec(**wish))
    with pytest.raises(errors.Invalid, match="too large"):
        await provider.create(a_spec(env={"LARGE": secrets.token_hex(20_000)}))
    assert await provider.list() == []
    with pytest.raises(errors.Unsupported, match="larger template"):
        await provider.create(a_spec(resources=Resources(cpu=64.0, memory_mb=1 << 20)))
