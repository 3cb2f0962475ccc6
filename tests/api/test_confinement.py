"""Isolation, egress, mounts and users over HTTP."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from paddock.egress.policy import EgressPolicy
from paddock.egress.records import EgressRecord, EgressReport, EgressTotals
from paddock.machine.agent import AgentMachine
from paddock.providers.base import IsolationLevel, IsolationReport, Layer, Provider
from paddock.providers.local import LocalProvider
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.server.context import ServerContext
from tests.api.conftest import MakeSandbox, assert_error
from tests.support.waiting import PATIENCE_S


async def test_egress_is_a_mode_or_a_mode_and_lists(client: httpx.AsyncClient, new_sandbox: MakeSandbox) -> None:
    for given, mode, allow in (
        ("none", "none", []),
        ({"mode": "none", "allow": ["a.test"]}, "none", ["a.test"]),
        ({"allow": ["a.test:443"]}, "proxy", ["a.test:443"]),
    ):
        sandbox = await new_sandbox(egress=given)
        assert (await client.get(f"/sandboxes/{sandbox}")).json()["egress"] == mode
        seen = (await client.get(f"/sandboxes/{sandbox}/egress")).json()
        assert (seen["mode"], seen["allow"], seen["deny"]) == (mode, allow, [])
    sandbox = await new_sandbox()
    body = (await client.get(f"/sandboxes/{sandbox}")).json()
    assert (body["egress"], body["isolation"], body["mounts"]) == ("proxy", None, [])


@pytest.mark.parametrize(
    "wish",
    [
        {"egress": "some"},
        {"egress": 5},
        {"egress": {"mode": "none", "colour": "red"}},
        {"egress": {"allow": "a.test"}},
        {"egress": {"allow": ["two words"]}},
        {"egress": {"deny": ["https://a.test/path"]}},
        {"egress": {"deny": ["300.1.2.3"]}},
        {"egress": {"allow": ["a.test"] * 513}},
        {"isolation": "perfect"},
        {"mounts": [{"source": "here", "target": "/workspace"}]},
        {"mounts": [{"source": "/srv/../etc", "target": "/workspace"}]},
        {"mounts": [{"source": "/srv", "target": "../data"}]},
        {"mounts": [{"source": "/srv", "target": "/a"}, {"source": "/opt", "target": "/a/"}]},
        *({"mounts": [{"source": "/srv", "target": target}]} for target in (
            "/", "//", "/.", "/proc", "/proc/self", "//proc", "/./sys", "/dev/shm", "/run", "/run/x", "/usr/", "/etc",
            "/a/../proc", "/a\u0000",
        )),
    ],
    ids=str,
)  # fmt: skip
async def test_wishes_that_make_no_sense_are_refused(client: httpx.AsyncClient, wish: dict[str, Any]) -> None:
    assert_error(await client.post("/sandboxes/create", json={"user_id": "alice", **wish}), 422, "invalid_request")


async def test_mounts_are_for_admins(member: httpx.AsyncClient) -> None:
    wish = {"user_id": "mallory", "mounts": [{"source": "/etc", "target": "/workspace"}]}
    assert_error(await member.post("/sandboxes/create", json=wish), 403, "forbidden")


@pytest.mark.parametrize(
    "wish",
    [
        {"isolation": "hardened"},
        {"egress": "full"},
        {"mounts": [{"source": "/not/there", "target": "/data"}]},
    ],
    ids=lambda wish: next(iter(wish)),
)
async def test_what_the_provider_cannot_give_is_a_conflict(
    client: httpx.AsyncClient, context: ServerContext, wish: dict[str, Any]
) -> None:
    provider = context.providers["local"]
    assert isinstance(provider, LocalProvider)
    builder = provider._builder
    builder.host = replace(builder.host, nft=None)
    builder._wanted = RunscSettings("/not/there")
    assert_error(
        await client.post("/sandboxes/create", json={"user_id": "alice", **wish}), 409, "confinement_unavailable"
    )
    assert (await client.get("/sandboxes")).json()["sandboxes"] == []


async def test_a_provider_without_a_report_says_so(
    client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalProvider, "isolation", Provider.isolation)
    error = assert_error(await client.get(f"/sandboxes/{sandbox}/isolation"), 501, "unsupported")
    assert "'local'" in error["message"]


async def test_the_isolation_report(client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def isolation(self: LocalProvider, sandbox_id: str) -> IsolationReport:
        return IsolationReport(IsolationLevel.BASIC, (Layer("seccomp", True, "on"), Layer("disk", False, "do this")))

    monkeypatch.setattr(LocalProvider, "isolation", isolation)
    assert (await client.get(f"/sandboxes/{sandbox}/isolation")).json() == {
        "sandbox_id": sandbox,
        "level": "basic",
        "requested": None,
        "layers": [
            {"name": "seccomp", "active": True, "detail": "on"},
            {"name": "disk", "active": False, "detail": "do this"},
        ],
    }


async def test_every_connection_is_shown_and_counted(
    client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = EgressRecord(1_800_000_000.0, "bad.test", None, 443, False, "it is denied", 0, 0, 0.001)

    async def egress(self: LocalProvider, sandbox_id: str) -> EgressReport:
        return EgressReport(EgressPolicy(deny=("bad.test",)), EgressTotals(7, 1, 10, 20), (refused,))

    monkeypatch.setattr(LocalProvider, "egress", egress)
    seen = (await client.get(f"/sandboxes/{sandbox}/egress")).json()
    assert seen["totals"] == {"connections": 7, "denied": 1, "bytes_up": 10, "bytes_down": 20}
    assert seen["latest"] == [
        {
            "at": "2027-01-15T08:00:00.000Z",
            "host": "bad.test",
            "address": None,
            "port": 443,
            "allowed": False,
            "reason": "it is denied",
            "bytes_up": 0,
            "bytes_down": 0,
            "seconds": 0.001,
        }
    ]


async def test_lists_are_changed_while_it_lives_and_the_mode_is_not(client: httpx.AsyncClient, sandbox: str) -> None:
    route = f"/sandboxes/{sandbox}/egress"
    changed = await client.put(route, json={"allow": ["a.test"], "deny": ["b.test"]})
    assert (changed.status_code, changed.json()["allow"], changed.json()["deny"]) == (200, ["a.test"], ["b.test"])
    assert (await client.put(route, json={"deny": []})).json()["allow"] == ["a.test"]
    error = assert_error(await client.put(route, json={"mode": "full"}), 409, "conflict")
    assert "Make a new sandbox" in error["message"]
    assert_error(await client.put(route, json={"allow": ["http://x.test/"]}), 422)
    assert_error(await client.put(route, json={"allow": None, "colour": 1}), 422)
    assert (await client.get(route)).json()["allow"] == ["a.test"]
    events = (await client.get(f"/sandboxes/{sandbox}/events")).json()["events"]
    assert [event["type"] for event in events].count("egress.changed") == 2


async def test_a_stranger_sees_none_of_it(member: httpx.AsyncClient, sandbox: str) -> None:
    for answer in (
        await member.get(f"/sandboxes/{sandbox}/isolation"),
        await member.get(f"/sandboxes/{sandbox}/egress"),
        await member.put(f"/sandboxes/{sandbox}/egress", json={"allow": []}),
    ):
        assert_error(answer, 404, "sandbox_not_found")


async def test_health_says_what_stands_ready(client: httpx.AsyncClient, context: ServerContext) -> None:
    context.settings.pool_size = 2
    await context.pool.tick()
    async with asyncio.timeout(PATIENCE_S):  # the pool's own loop may be in the middle of a look
        while (pool := (await client.get("/health")).json()["pool"]) != {"ready": 2, "wanted": 2}:
            assert pool["wanted"] == 2
            await asyncio.sleep(0.02)


async def test_every_file_route_takes_the_user(
    client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("stat", "resolve", "list_directory", "read_file", "write_file", "make_directory", "move", "remove"):
        monkeypatch.setattr(AgentMachine, name, _noting_user(getattr(AgentMachine, name), asked))
    base, path = f"/sandboxes/{sandbox}/files", "/workspace/a"
    by_body = {"sandbox_id": sandbox, "path": path, "user": "root"}
    query = {"path": path, "user": "root"}
    calls = [
        ("POST", "/sandboxes/write-file", {"json": by_body | {"content": "x"}}),
        ("POST", "/sandboxes/read-file", {"json": by_body}),
        ("PUT", base, {"params": query, "content": b"x"}),
        ("GET", base, {"params": query}),
        ("HEAD", base, {"params": query}),
        ("GET", f"{base}/stat", {"params": query}),
        ("GET", f"{base}/list", {"params": {"user": "root"}}),
        ("POST", f"{base}/mkdir", {"json": {"path": "/workspace/d", "user": "root"}}),
        ("POST", f"{base}/move", {"json": {"source": path, "destination": "/workspace/b", "user": "root"}}),
        ("DELETE", base, {"params": {"path": "/workspace/b", "user": "root"}}),
    ]
    for method, route, options in calls:
        asked.clear()
        answer = await client.request(method, route, **options)
        assert answer.status_code == 200, (method, route, answer.text)
        assert asked and set(asked) == {"root"}, (method, route, asked)


def _noting_user(method: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def noting(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        asked.append(bound.arguments["user"])
        return method(*given, **named)

    return noting


async def test_a_user_that_is_none_is_refused(client: httpx.AsyncClient, sandbox: str) -> None:
    for user, status in (("ghost", 422), ("../x", 422), ("", 422)):
        answer = await client.get(f"/sandboxes/{sandbox}/files/stat", params={"path": "/workspace", "user": user})
        assert_error(answer, status, "invalid_request")
        run = {"sandbox_id": sandbox, "command": "true", "user": user}
        assert_error(await client.post("/sandboxes/run-command", json=run), status, "invalid_request")
