"""CORS: for origins that the operator names, on the API and both facades, and never with a browser's credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from pydantic import ValidationError

from paddock.api.app import create_app
from paddock.settings import Settings
from tests.api.conftest import speaking_to

APP, OTHER = "https://app.example.com", "https://other.example.com"
PATHS = ("/sandboxes", "/e2b/v2/sandboxes", "/daytona/api/sandbox", "/daytona/toolbox/x/files")


@asynccontextmanager
async def _serving(settings: Settings, origins: tuple[str, ...], key: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings.model_copy(update={"cors_origins": origins}))
    async with app.router.lifespan_context(app), speaking_to(app, key) as client:
        yield client


@pytest.fixture
async def named(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    async with _serving(settings, (APP, "http://localhost:5173"), key) as client:
        yield client


@pytest.fixture
async def open_to_all(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    async with _serving(settings, ("*",), key) as client:
        yield client


def _preflight(origin: str, *names: str) -> dict[str, str]:
    asked = {"Access-Control-Request-Headers": ", ".join(names)} if names else {}
    return {"Origin": origin, "Access-Control-Request-Method": "POST", **asked}


async def test_it_is_off_by_default(client: httpx.AsyncClient) -> None:
    for path in PATHS:
        for answer in (
            await client.get(path, headers={"Origin": APP}),
            await client.options(path, headers=_preflight(APP)),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", PATHS)
async def test_a_named_origin_may_ask_before_and_read(named: httpx.AsyncClient, path: str) -> None:
    before = await named.options(path, headers=_preflight(APP, "x-api-key", "authorization"))
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == APP
    assert before.headers["access-control-allow-headers"] == "x-api-key, authorization"
    assert "DELETE" in before.headers["access-control-allow-methods"]
    for headers in ({"Origin": APP}, {"Origin": APP, "X-API-Key": "wrong", "Authorization": "Bearer wrong"}):
        answer = await named.get(path, headers=headers)  # also a failure can be read
        assert answer.headers.get_list("access-control-allow-origin") == [APP]
        assert "Origin" in answer.headers.get_list("vary")
        assert "access-control-allow-credentials" not in answer.headers
        assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("origin", [OTHER, "null", f"{APP}.evil.test", "https://APP.example.com", ""])
async def test_nobody_else_is_let_in(named: httpx.AsyncClient, origin: str) -> None:
    before = await named.options("/sandboxes", headers=_preflight(origin))
    assert before.status_code == 405
    for answer in (before, await named.get("/sandboxes", headers={"Origin": origin})):
        assert "access-control-allow-origin" not in answer.headers
        assert "Origin" in answer.headers.get_list("vary")  # so that no cache mixes them up


async def test_what_is_refused_before_it_is_read_can_be_read(named: httpx.AsyncClient) -> None:
    answer = await named.post("/sandboxes/create", content=b"x" * (65 << 20), headers={"Origin": APP})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (413, APP)


async def test_all_origins_get_no_credentials_either(open_to_all: httpx.AsyncClient) -> None:
    for answer in (
        await open_to_all.options("/sandboxes", headers=_preflight(OTHER, "x-api-key")),
        await open_to_all.get("/sandboxes", headers={"Origin": OTHER}),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


async def test_a_port_of_a_sandbox_has_its_own_rules(named: httpx.AsyncClient) -> None:
    made = (await named.post("/sandboxes/create", json={"user_id": "alice"})).json()
    answer = await named.get(f"/p/{made['sandbox_id']}/49983/health", headers={"Origin": OTHER})
    assert answer.headers.get_list("access-control-allow-origin") == ["*"]
    await named.delete(f"/sandboxes/{made['sandbox_id']}")


@pytest.mark.parametrize(
    "given", ["app.example.com", "https://app.example.com/", "https://*.example.com", "null", "https://a b", "ftp://x"]
)
def test_what_is_no_origin_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        Settings(_env_file=None, PADDOCK_CORS_ORIGINS=given)


def test_the_origin_of_a_sandbox_is_refused() -> None:
    with pytest.raises(ValidationError, match="port of a sandbox"):
        Settings(_env_file=None, PADDOCK_CORS_ORIGINS=f"http://3000-i{'a' * 20}.localhost:8080")
