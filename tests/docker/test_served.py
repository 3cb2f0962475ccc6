"""What the server does in a container's stead, and serves inside it: near and far."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import Shape
from paddock.providers.docker import DockerProvider
from tests.docker import engine
from tests.docker.place import Inside, Place
from tests.local.outside import REACHABLE, Outside

ASK = (
    "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:6060/', timeout=30).read().decode())\""
)


class Porter:
    """Says whose sandbox it is."""

    port = 6060

    def variables(self, key: str) -> Mapping[str, str]:
        return {"PORTER": f"http://127.0.0.1:{self.port}/{key}"}

    async def serve(self, sandbox_id: str, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_recv(client, 4096)
        text = sandbox_id.encode()
        await loop.sock_sendall(client, b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


class Served(Place):
    def build(self) -> DockerProvider:
        made = super().build()
        assert made.answer_inside(Porter())
        return made


@pytest.fixture(params=["near", "far"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path, engine.address(), way=request.param, reachable=REACHABLE)
    await made.provider.start()
    yield made
    await made.clear()
    assert made.leftovers() == []


async def _is_served(inside: Inside) -> None:
    assert await inside.says(ASK) == inside.sandbox_id


async def test_a_port_inside_is_answered_by_the_server_after_its_restart_and_a_freeze_too(served: Served) -> None:
    inside = await served.create()
    await _is_served(inside)
    assert await inside.says("echo $PORTER") == f"http://127.0.0.1:6060/{served.keys[inside.sandbox_id]}"
    await served.restart()
    await _is_served(await served.inside(inside.sandbox_id))
    await served.provider.pause(inside.sandbox_id)
    await served.provider.resume(inside.sandbox_id)
    await _is_served(await served.inside(inside.sandbox_id))
    await served.provider.pause(inside.sandbox_id, keep_memory=False)
    await served.provider.resume(inside.sandbox_id)
    await _is_served(await served.inside(inside.sandbox_id))


async def test_one_made_in_advance_is_served_under_the_name_that_it_got(served: Served) -> None:
    await served.provider.warm(Shape(engine.DEBIAN, 256))
    await _is_served(await served.create())


async def test_the_server_connects_in_its_stead_under_its_rules(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Outside()
    outside.install(monkeypatch)
    server = await outside.listen()
    inside = await served.create(egress=EgressPolicy(EgressMode.PROXY, allow=("open.test",)))
    out = await served.provider.connect_out(inside.sandbox_id, "open.test", 80, 30)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(out.sock, b"GET / HTTP/1.0\r\n\r\n")
    assert await loop.sock_recv(out.sock, 100)
    out.sock.close()
    out.close()
    with pytest.raises(errors.Forbidden, match=r"other\.test:80 cannot be reached from this sandbox"):
        await served.provider.connect_out(inside.sandbox_id, "other.test", 80, 30)
    report = await served.provider.egress(inside.sandbox_id)
    assert {entry.host for entry in report.latest} == {"open.test", "other.test"}
    server.close()
