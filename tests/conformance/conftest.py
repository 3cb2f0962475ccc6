"""Every provider, one after the other, under the same promises. Another provider is one more line in PROVIDERS."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paddock.machine.base import Machine
from paddock.providers.base import IsolationLevel, Provider, Resources, SandboxSpec
from paddock.providers.docker import DockerProvider
from paddock.providers.local import LocalProvider
from tests.conformance.shell import Shell
from tests.docker import engine
from tests.local import gvisor
from tests.vendor.account import Account

PROVIDERS: dict[str, Callable[[Path, Path], Provider]] = {
    "local": lambda home, shared: LocalProvider(home / "local", made=shared),
    "local-gvisor": lambda home, shared: LocalProvider(home / "local", made=shared, runsc=gvisor.wanted()),
    "docker": lambda home, shared: DockerProvider(home / "docker", address=engine.address(), images=[engine.DEBIAN]),
    "docker-far": lambda home, shared: DockerProvider(
        home / "docker", address=engine.far_address(), images=[engine.DEBIAN], way="far", runtime=engine.RUNTIME
    ),
}
"""How a server process would build each one; twice on the same home means the same state. What every test may share
(layers made of the host) is in a second folder."""


_ALWAYS_AT_A_VENDOR = ("test_lifecycle.py",)
_NOT_IN_A_GUEST = {
    "test_attributes_are_pinned_to_a_file_and_replaced_as_a_whole": "gVisor has no extended attributes of files",
    "test_attributes_of_many_are_told_in_order": "gVisor has no extended attributes of files",
}
"""By ``docs/local.md``, which lists them."""


class Installation:
    """One provider's state, and the Provider object that works on it now."""

    def __init__(
        self, build: Callable[[], Provider], *, sizes: bool = True, isolation: IsolationLevel | None = None
    ) -> None:
        """``sizes``: machines are made as large as asked for, and not as large as their template says."""
        self.build = build
        self.sizes = sizes
        self.isolation = isolation
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
            "isolation": self.isolation,
        }
        return SandboxSpec(**{**given, **changes})  # type: ignore[arg-type]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Machines at a vendor are the same agent behind a longer way: what that way could change runs always, and all of
    it with ``PADDOCK_TEST_VENDOR=all``."""
    if os.environ.get("PADDOCK_TEST_VENDOR") == "all":
        return
    left_out = [
        item
        for item in items
        if item.get_closest_marker("vendor")
        and item.path.parent == Path(__file__).parent
        and (item.path.name not in _ALWAYS_AT_A_VENDOR or "[daytona" in item.name)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


_AT_A_VENDOR = [pytest.mark.vendor, pytest.mark.timeout(300)]
_ACCOUNTS = {"e2b": "account", "daytona": "daytona_account"}


@pytest.fixture(params=[*PROVIDERS, *(pytest.param(name, marks=_AT_A_VENDOR) for name in _ACCOUNTS)])
async def installation(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    shared = tmp_path_factory.getbasetemp() / "made"
    if request.param in _ACCOUNTS:
        account: Account = request.getfixturevalue(_ACCOUNTS[request.param])
        made = Installation(lambda: account.provider(tmp_path), sizes=False)
    else:
        level = IsolationLevel.HARDENED if request.param == "local-gvisor" else None
        if level is not None and (reason := _NOT_IN_A_GUEST.get(request.node.originalname)) is not None:
            pytest.skip(reason)
        made = Installation(lambda: PROVIDERS[request.param](tmp_path, shared), isolation=level)
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
