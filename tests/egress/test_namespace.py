"""The proxy as a sandbox has it: a listener inside a namespace without routes, served from outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddock.egress.policy import EgressPolicy
from paddock.egress.proxy import proxy_variables
from tests.egress.conftest import Make, Serve
from tests.egress.namespaces import Namespace, new_namespace
from tests.egress.outside import Sandbox
from tests.egress.sites import web
from tests.support.waiting import until

PORT = 3128


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with new_namespace() as namespace:
        yield namespace


@pytest.fixture
async def inside(namespace: Namespace, make: Make) -> Sandbox:
    [listener] = await namespace.listen(("tcp", "127.0.0.1", PORT))
    sandbox: Sandbox = make(EgressPolicy(allow=("site.test",)), listener=listener)
    return sandbox


async def test_tools_inside_reach_what_is_allowed_and_nothing_else(
    namespace: Namespace, inside: Sandbox, serve: Serve
) -> None:
    server = await serve(web)
    curl = ("curl", "-sS", "--max-time", "10", "-w", " %{http_code}")
    env = proxy_variables(PORT)
    allowed = await namespace.run(*curl, f"http://site.test:{server.port}/a", env=env)
    assert allowed.stdout == "you asked for /a 200"
    denied = await namespace.run(*curl, f"http://evil.test:{server.port}/a", env=env)
    assert denied.stdout.endswith(" 403") and "not in the allow list" in denied.stdout
    tunnel = await namespace.run(*curl, f"https://evil.test:{server.port}/a", env=env)
    assert tunnel.returncode != 0 and "403" in tunnel.stderr
    fetched = await namespace.run(
        *("python3", "-c", f"import urllib.request as u; print(u.urlopen('http://site.test:{server.port}/py').read())"),
        env=env,
    )
    assert fetched.stdout == "b'you asked for /py'\n"
    await until(lambda: inside.gate.ledger.totals.connections == 4)
    assert inside.gate.ledger.totals.denied == 2


async def test_without_the_proxy_there_is_no_way_out(namespace: Namespace, inside: Sandbox, serve: Serve) -> None:
    server = await serve(web)
    tried = await namespace.python(
        "import socket\n"
        f"for host, port in (('127.0.0.1', {server.port}), ('::1', {server.port}), ('8.8.8.8', 53), ('2606::1', 80),"
        " ('169.254.169.254', 80), ('10.0.0.1', 80)):\n"
        "    try: socket.create_connection((host, port), 5); print('connected')\n"
        "    except OSError as trouble: print(trouble.errno)\n"
    )
    # Refused by the sandbox's own, empty loopback; unreachable everything else.
    assert tried.split() == ["111", "111", "101", "101", "101", "101"]
    assert server.accepted == []


async def test_the_loopback_inside_is_not_the_loopback_outside(namespace: Namespace, make: Make, serve: Serve) -> None:
    server = await serve(web)
    [listener] = await namespace.listen(("tcp", "127.0.0.1", PORT))
    make(EgressPolicy(), listener=listener, reachable=())
    for host in ("127.0.0.1", "localhost", "[::1]", "0x7f.1"):
        url = f"http://{host}:{server.port}/"
        argv = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "", "--proxy", f"127.0.0.1:{PORT}")
        assert (await namespace.run(*argv, url)).stdout == "403"
    assert server.accepted == []


def test_the_variables_leave_the_sandboxes_own_loopback_alone() -> None:
    variables = proxy_variables(PORT)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        assert variables[name] == f"http://127.0.0.1:{PORT}"
    for name in ("NO_PROXY", "no_proxy"):
        assert {"localhost", "127.0.0.1", "::1"} <= set(variables[name].split(","))
