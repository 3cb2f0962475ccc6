"""Ctrl-C on a server whose machines are at a vendor: it stops in order, whatever the vendor's SDK does with signals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from tests.daytona.environments import SDK
from tests.e2b.server import PaddockServer
from tests.support.waiting import wait_until
from tests.vendor.account import Account

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]

_WITH_SDK = "import sys; sys.path += {0!r}; from paddock.cli.app import main; main()"


def _settings(provider: str, account: Account) -> dict[str, str]:
    url, key = account.server.url, account.server.key
    if provider == "e2b":
        return {"E2B_API_KEY": key, "E2B_API_URL": f"{url}/e2b", "E2B_SANDBOX_URL": url}
    return {"DAYTONA_API_KEY": key, "DAYTONA_API_URL": f"{url}/daytona/api"}


@pytest.mark.parametrize("provider", ["e2b", "daytona"])
def test_ctrl_c_ends_cleanly_and_leaves_no_warm_machines(
    provider: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    account: Account = request.getfixturevalue("account" if provider == "e2b" else "daytona_account")
    names = f"{provider},local"  # which makes machines in advance, as no vendor does
    server = PaddockServer(
        tmp_path / "home", SANDBOX_PROVIDER=provider, SANDBOX_PROVIDERS=names, **_settings(provider, account)
    )
    sdk = [str(path) for path in (SDK.folder / "lib").glob("python3*/site-packages")] if provider == "daytona" else []
    server._command = (sys.executable, "-c", _WITH_SDK.format(sdk))
    warm = server.home / "local" / "warm"
    server.start()
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        # The SDK has a connection from its first request on.
        made = client.create_sandbox("alice", timeout=300)
        assert client.run_command(made.sandbox_id, "echo hello").stdout == "hello\n"
        client.delete_sandbox(made.sandbox_id)
        _wait_for_warm(client)
    assert list(warm.iterdir())
    assert server.interrupt() == 0
    assert "Traceback" not in server.log.read_text()
    assert not list(warm.iterdir())


def _wait_for_warm(client: SyncSandboxClient) -> None:
    def is_full() -> bool:
        pool = client.health().pool
        return pool is not None and 0 < pool.wanted <= pool.ready

    wait_until(is_full)
