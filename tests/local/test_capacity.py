"""No sandbox is given more than this machine has, whoever asks and by whichever way."""

from __future__ import annotations

import os

import httpx
import pytest

from paddock.client import SyncSandboxClient
from paddock.errors import Invalid
from paddock.providers.common.capacity import memory_bytes
from tests.e2b.server import PaddockServer

_MIB = 1 << 20


def test_nobody_is_given_a_terabyte_of_memory(local_server: PaddockServer) -> None:
    machine = memory_bytes() // _MIB
    with SyncSandboxClient(local_server.url, api_key=local_server.key) as client:
        with pytest.raises(Invalid, match=f"at most {machine} MB of memory") as refused:
            client.create_sandbox("alice", resources={"memory_mb": _MIB})
        assert refused.value.details == {"field": "resources.memory_mb", "max": machine}
        with pytest.raises(Invalid, match="MB of disk"):
            client.create_sandbox("alice", resources={"disk_mb": 1 << 24})
        with pytest.raises(Invalid, match=f"at most {os.cpu_count()} cores"):
            client.create_sandbox("alice", resources={"cpu": 256})


def test_a_daytona_client_is_refused_in_daytonas_words(local_server: PaddockServer) -> None:
    headers = {"Authorization": f"Bearer {local_server.key}"}
    asked = {"memory": 1000}
    refused = httpx.post(f"{local_server.url}/daytona/api/sandbox", headers=headers, json=asked, timeout=60)
    assert refused.status_code == 400
    assert "MB of memory" in refused.json()["message"]
