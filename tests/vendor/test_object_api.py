"""``E2BSandbox()`` and ``DaytonaSandbox()``, as programs for older servers have them, on a server that has the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddock import DaytonaSandbox, E2BSandbox, SandboxClient, SandboxSession, errors
from tests.support.repository import FILES, served_repository
from tests.vendor.account import Account
from tests.vendor.front import a_front

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]

_WAY_OUT = {"http_proxy": "http://127.0.0.1:3128"}
"""Of the machines of the Paddock that plays the vendor: a real vendor's need none."""


@pytest.fixture(params=["e2b", "daytona"])
def account_of(request: pytest.FixtureRequest) -> Account:
    found: Account = request.getfixturevalue("account" if request.param == "e2b" else "daytona_account")
    return found


@pytest.fixture
async def client(account_of: Account, tmp_path: Path) -> AsyncIterator[SandboxClient]:
    """Of a server whose default provider is the vendor."""
    async with a_front(account_of, tmp_path / "home") as (_, http):
        key, transport = http.headers["X-API-Key"], http._transport
        async with SandboxClient("http://127.0.0.1:1", api_key=key, transport=transport) as client:
            yield client


@pytest.fixture
def kind(request: pytest.FixtureRequest, account_of: Account) -> type[SandboxSession]:
    return E2BSandbox if request.node.callspec.params["account_of"] == "e2b" else DaytonaSandbox


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    with served_repository(tmp_path / "repository") as url:
        yield url


async def test_an_object_of_the_vendors_class(client: SandboxClient, kind: type[SandboxSession]) -> None:
    sandbox = kind(client=client)
    sandbox_id = await sandbox.create(template="host", timeout=600)
    assert (sandbox.sandbox_id, sandbox.sandbox.provider) == (sandbox_id, sandbox.provider)
    await sandbox.write_file("app.py", "print('hello')")
    assert await sandbox.read_file("app.py") == "print('hello')"
    assert str(await sandbox.run_command("python3 app.py")) == "hello\n"
    assert "8000" in await sandbox.get_preview_url(port=8000)
    await sandbox.delete()
    assert (await sandbox.get_status()).status == "deleted"


async def test_a_repository_and_an_image(client: SandboxClient, kind: type[SandboxSession], repository: str) -> None:
    sandbox = kind(client=client)
    await sandbox.create(git_url=repository, image="host", env=_WAY_OUT)
    assert sandbox.sandbox.template_id == ("image:host" if kind is DaytonaSandbox else "host")
    assert str(await sandbox.run_command("cat project/greeting")) == FILES["greeting"]
    await sandbox.delete()


async def test_an_image_of_the_servers_own_choice_of_provider(
    client: SandboxClient, kind: type[SandboxSession]
) -> None:
    """The program does not know where its sandboxes are made, so the server says it as the provider wants it."""
    sandbox = SandboxSession(client=client)
    await sandbox.create(image="host")
    assert sandbox.sandbox.provider == kind.provider
    assert sandbox.sandbox.template_id == ("image:host" if kind is DaytonaSandbox else "host")
    await sandbox.delete()
    with pytest.raises(errors.PaddockError, match=r"[Ii]mage 'no-such:1'"):
        await SandboxSession(client=client).create(image="no-such:1")
