"""An account at a vendor: a second Paddock that speaks E2B's protocol, in a process of its own, on local sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from paddock.providers.vendor.provider import VendorProvider
from tests.e2b.server import PaddockServer

LEASE = 600


@dataclass
class Account:
    server: PaddockServer

    def vendor(self, **changes: Any) -> Any:
        """As the server's settings would make it."""
        from paddock.providers.e2b.vendor import E2BVendor

        given = {"api_url": f"{self.server.url}/e2b", "sandbox_url": self.server.url, **changes}
        return E2BVendor(given.pop("api_key", self.server.key), **given)

    def provider(self, home: Path, *, lease: int = LEASE, **changes: Any) -> VendorProvider:
        return VendorProvider(self.vendor(**changes), home / "e2b", lease=lease)

    @contextmanager
    def owner(self) -> Iterator[SyncSandboxClient]:
        """The other Paddock's own API, to look and act behind the provider's back."""
        with SyncSandboxClient(self.server.url, api_key=self.server.key) as client:
            yield client


@contextmanager
def an_account(home: Path, **settings: str) -> Iterator[Account]:
    pytest.importorskip("e2b", reason="E2B's SDK is not installed")
    server = PaddockServer(home, **settings)
    server.start()
    account = Account(server)
    try:
        yield account
    finally:
        try:
            with account.owner() as client:
                for sandbox in list(client.iter_sandboxes()):
                    client.delete_sandbox(sandbox.sandbox_id)
        finally:
            server.stop()
