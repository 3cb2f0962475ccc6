"""The attempts of ``paddock doctor --full`` on a whole server: refused by ours, told of where nobody refuses them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from paddock.doctor.kinds import SandboxKind
from paddock.doctor.server.attacks import SERVER_ATTACKS, attack_server
from paddock.doctor.server.target import Target, outside_bound, server_started
from tests.escape.kinds import EVERY
from tests.escape.test_attempts import hold

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

DESCRIPTORS = 128
CARELESS = Path(__file__).with_name("careless.py")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def target(kind: SandboxKind) -> AsyncIterator[Target]:
    async with server_started(kind) as started:
        yield started


@pytest.mark.parametrize("kind", EVERY, indirect=True, scope="session")
@pytest.mark.parametrize("name", SERVER_ATTACKS)
async def test_the_server_refuses(target: Target, name: str) -> None:
    hold(await attack_server(target, name))


@pytest.mark.parametrize("kind", EVERY, indirect=True, scope="session")
async def test_its_sandboxes_are_of_the_kind_that_is_tried(target: Target, kind: SandboxKind) -> None:
    made = await target.sandbox()
    report = (await target.member.get(f"/sandboxes/{made['sandbox_id']}/isolation")).raise_for_status().json()
    assert made["provider"] == kind.name
    assert kind.level is None or report["level"] == kind.level.value


@pytest_asyncio.fixture(loop_scope="session")
async def careless(tmp_path: Path) -> AsyncIterator[Target]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CARELESS), str(tmp_path / "log"), str(DESCRIPTORS)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}"
        client = partial(_client, url)
        async with client("e2b_of_a_member") as member:
            with outside_bound() as outside:
                yield Target(url, member, member, tmp_path, client, process.pid, DESCRIPTORS, outside)
    finally:
        process.kill()
        await process.wait()


def _client(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"X-API-Key": key})


@pytest.mark.parametrize("name", SERVER_ATTACKS)
async def test_a_careless_server_is_told_of(careless: Target, name: str) -> None:
    outcome = await attack_server(careless, name)
    assert outcome.verdict.value == "not refused"
    for nothing_shown in ("did not answer", "nothing is known", "not tried"):
        assert nothing_shown not in outcome.detail
