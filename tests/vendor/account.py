"""An account at a vendor: a second Paddock that speaks its protocol, in a process of its own, on local sandboxes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from paddock.providers.vendor.provider import VendorProvider
from tests.daytona.environments import SDK, Unavailable, prepare
from tests.e2b.server import PaddockServer
from tests.support.repository import REACHABLE

LEASE = 600


@dataclass
class Account:
    """At E2B."""

    server: PaddockServer

    def vendor(self, **changes: Any) -> Any:
        """As the server's settings would make it."""
        from paddock.providers.e2b.vendor import E2BVendor

        given = {"api_url": f"{self.server.url}/e2b", "sandbox_url": self.server.url, **changes}
        return E2BVendor(given.pop("api_key", self.server.key), **given)

    def provider(self, home: Path, *, lease: int = LEASE, **changes: Any) -> VendorProvider:
        return VendorProvider(self.vendor(**changes), home / "vendor", lease=lease)

    @contextmanager
    def owner(self) -> Iterator[SyncSandboxClient]:
        """The other Paddock's own API, to look and act behind the provider's back."""
        with SyncSandboxClient(self.server.url, api_key=self.server.key) as client:
            yield client


class DaytonaAccount(Account):
    def vendor(self, **changes: Any) -> Any:
        from paddock.providers.daytona.vendor import DaytonaVendor

        given = {"api_url": f"{self.server.url}/daytona/api", **changes}
        return DaytonaVendor(given.pop("api_key", self.server.key), **given)


def load_daytona() -> None:
    """Daytona's SDK is large and pins what others want newer: it is not among the development tools, and comes from the
    place where its own tests have it."""
    if find_spec("daytona") is not None:
        return
    try:
        prepare(SDK)
    except Unavailable as error:
        pytest.skip(f"Daytona's SDK cannot be installed: {error}")
    sys.path.append(str(next((SDK.folder / "lib").glob("python3*/site-packages"))))
    invalidate_caches()


@contextmanager
def an_account(home: Path, kind: type[Account] = Account) -> Iterator[Account]:
    if kind is DaytonaAccount:
        load_daytona()
    else:
        pytest.importorskip("e2b", reason="E2B's SDK is not installed")
    server = PaddockServer(home, PADDOCK_EGRESS_REACHABLE=REACHABLE)
    server.start()
    account = kind(server)
    try:
        yield account
    finally:
        try:
            with account.owner() as client:
                for sandbox in list(client.iter_sandboxes()):
                    client.delete_sandbox(sandbox.sandbox_id)
        finally:
            server.stop()
