"""``E2BSandbox()`` and ``DaytonaSandbox()``, as programs for older servers have them, on a server that has the two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import DaytonaSandbox, E2BSandbox, SandboxClient, SandboxSession
from tests.vendor.account import Account
from tests.vendor.front import a_front

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]


@pytest.fixture(params=["e2b", "daytona"])
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxSession]:
    account: Account = request.getfixturevalue("account" if request.param == "e2b" else "daytona_account")
    kind = E2BSandbox if request.param == "e2b" else DaytonaSandbox
    async with a_front(account, tmp_path / "home") as (_, http):
        key, transport = http.headers["X-API-Key"], http._transport
        async with SandboxClient("http://127.0.0.1:1", api_key=key, transport=transport) as client:
            yield kind(client=client)


async def test_an_object_of_the_vendors_class(sandbox: SandboxSession) -> None:
    sandbox_id = await sandbox.create(template="host", timeout=600)
    assert (sandbox.sandbox_id, sandbox.sandbox.provider) == (sandbox_id, sandbox.provider)
    await sandbox.write_file("app.py", "print('hello')")
    assert await sandbox.read_file("app.py") == "print('hello')"
    assert str(await sandbox.run_command("python3 app.py")) == "hello\n"
    assert "8000" in await sandbox.get_preview_url(port=8000)
    await sandbox.delete()
    assert (await sandbox.get_status()).status == "deleted"
