"""The attempts of ``paddock doctor --full`` on a whole server: refused by ours, told of where nobody refuses them."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from paddock.doctor.server import SERVER_ATTACKS, Target, attack_server, server_started
from tests.escape.test_attempts import hold

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOLD_OF = ["server-page", "server-private-network", "server-oversized", "server-undeletable", "server-secrets"]
"""The other two are about time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(possible: None) -> AsyncIterator[Target]:
    async with server_started() as started:
        yield started


@pytest.mark.parametrize("name", SERVER_ATTACKS)
async def test_the_server_refuses(target: Target, name: str) -> None:
    hold(await attack_server(target, name))


class _Careless(BaseHTTPRequestHandler):
    """Does whatever it is asked, and writes all of it down."""

    log: Path

    def _answer(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.log.open("ab") as log:
            log.write(self.requestline.encode() + bytes(self.headers) + asked)
        body = json.dumps({"sandbox_id": "alice_1", "key": "abc", "status": "running"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, *args: object) -> None:
        """Not on the terminal."""


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[str]:
    handler = type("Handler", (_Careless,), {"log": tmp_path / "log"})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", TOLD_OF)
async def test_a_careless_server_is_told_of(careless: str, tmp_path: Path, name: str) -> None:
    async with httpx.AsyncClient(base_url=careless, headers={"X-API-Key": "e2b_of_a_member"}) as client:
        outcome = await attack_server(Target(careless, client, client, tmp_path), name)
    assert outcome.verdict.value == "not refused"
    assert "did not answer" not in outcome.detail
