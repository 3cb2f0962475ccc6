"""Every provider, one after the other, under the same promises. Another provider is one more line in PROVIDERS."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from paddock.machine.base import Machine
from paddock.providers.base import Provider, Resources, SandboxSpec
from paddock.providers.fake import FakeProvider
from paddock.providers.local import LocalProvider
from tests.conformance.shell import Shell
from tests.vendor.account import Account, an_account

PROVIDERS: dict[str, Callable[[Path, Path], Provider]] = {
    "fake": lambda home, shared: FakeProvider(home / "fake"),
    "local": lambda home, shared: LocalProvider(home / "local", made=shared),
}
"""How a server process would build each one; twice on the same home means the same state. What every test may share
(layers made of the host) is in a second folder."""


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """E2B is played by a second Paddock, a server of its own; its sandboxes are local ones."""
    with an_account(tmp_path_factory.mktemp("vendor") / "home") as found:
        yield found


class Installation:
    """One provider's state, and the Provider object that works on it now."""

    def __init__(self, build: Callable[[], Provider]) -> None:
        self.build = build
        self.provider = build()

    async def restart(self) -> Provider:
        """What a new server process would see."""
        await self.provider.close()
        self.provider = self.build()
        await self.provider.start()
        return self.provider

    async def spec(self, **changes: object) -> SandboxSpec:
        given: dict[str, object] = {
            "sandbox_id": f"tester_{secrets.token_hex(4)}",
            "key": "i" + secrets.token_hex(10),
            "owner_id": "owner",
            "user_id": "tester",
            "template_id": (await self.provider.templates())[0],
            "env": {"FROM_SANDBOX": "yes", "SHADOWED": "sandbox"},
            "resources": Resources(cpu=1.0, memory_mb=256, disk_mb=512, pids=256),
            "labels": {"name": "märchen", "n": "1"},
        }
        return SandboxSpec(**{**given, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=[*PROVIDERS, pytest.param("e2b", marks=pytest.mark.vendor)])
async def installation(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    shared = tmp_path_factory.getbasetemp() / "made"
    if request.param == "e2b":
        account: Account = request.getfixturevalue("account")
        made = Installation(lambda: account.provider(tmp_path))
    else:
        made = Installation(lambda: PROVIDERS[request.param](tmp_path, shared))
    await made.provider.start()
    yield made
    for found in await made.provider.list():
        await made.provider.delete(found.sandbox_id)
    await made.provider.close()


@pytest.fixture
def provider(installation: Installation) -> Provider:
    return installation.provider


@pytest.fixture
async def spec(installation: Installation) -> SandboxSpec:
    return await installation.spec()


@pytest.fixture
async def machine(provider: Provider, spec: SandboxSpec) -> Machine:
    """A fresh sandbox; the installation deletes it afterwards."""
    await provider.create(spec)
    return await provider.attach(spec.sandbox_id)


@pytest.fixture
def shell(machine: Machine) -> Shell:
    return Shell(machine)
