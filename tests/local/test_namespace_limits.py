"""A kernel whose limit of namespaces is used up: it says "No space left on device", and Paddock says which sysctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock import errors
from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer

_LIMIT = 8
# In a user namespace of its own, whose limit is nobody else's, and without rights in it, as an ordinary user.
_LIMITED = (
    *("unshare", "-U", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c"),
    f'echo {_LIMIT} > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"',
    "sh",
)


def test_namespaces_that_are_used_up_are_named(tmp_path: Path) -> None:
    server = PaddockServer(tmp_path / "home", within=_LIMITED, PADDOCK_POOL_SIZE="0")
    server.start()
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        try:
            with pytest.raises(errors.PaddockError) as refused:
                for _ in range(_LIMIT + 1):
                    client.create_sandbox("alice")
        finally:
            for box in list(client.iter_sandboxes()):
                client.delete_sandbox(box.sandbox_id)
    server.stop()
    assert f"user.max_user_namespaces is {_LIMIT}" in refused.value.message
    assert "sysctl -w user.max_user_namespaces=15000" in refused.value.message
    assert "No space left" not in refused.value.message
