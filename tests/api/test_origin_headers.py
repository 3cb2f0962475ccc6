"""No answer of any route is a page of this origin, whoever wrote the bytes in it, but those of ``/docs``."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi import FastAPI

from paddock.gateway.origin import API_HEADERS, FILE_POLICY
from paddock.server.context import ServerContext
from tests.api.all_routes import all_routes

PAGE = b"<!doctype html><script>alert(document.domain)</script>"
MARKED = "<b>marked</b>"


def assert_no_document(answer: httpx.Response, policy: str = API_HEADERS["Content-Security-Policy"]) -> None:
    assert answer.headers.get_list("content-security-policy") == [policy], answer.url
    assert "sandbox" in policy.split("; "), "no scripts, and no origin"
    for name in ("X-Content-Type-Options", "Cross-Origin-Opener-Policy", "Origin-Agent-Cluster", "Referrer-Policy"):
        assert answer.headers.get_list(name) == [API_HEADERS[name]], (answer.url, name)
    for name in ("set-cookie", "service-worker-allowed"):
        assert name not in answer.headers


async def test_no_route_answers_with_a_document(app: FastAPI, stranger: httpx.AsyncClient) -> None:
    routes = [(route.method, route.path) for route in await all_routes(app)]
    assert {"/sandboxes/{sandbox_id}/files", "/openapi.json", "/docs"} <= {path for _, path in routes}
    for facade in ("/e2b/", "/daytona/api/", "/daytona/toolbox/"):
        assert any(path.startswith(facade) for _, path in routes)
    assert len(routes) > 150
    for method, path in routes:
        answer = await stranger.request(method, re.sub(r"\{[^}]*\}", MARKED, path))
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert path == "/docs", "whatever else is HTML must be looked at here"
        else:
            assert_no_document(answer)


@pytest.mark.parametrize(
    "target", ["/nowhere/<script>", "/e2b/nowhere", "/daytona/api/nowhere", "/%ff", "/files?signature=x"]
)
async def test_neither_does_a_failure(stranger: httpx.AsyncClient, target: str) -> None:
    answer = await stranger.get(target, headers={"Accept": "text/html"})
    assert answer.headers["content-type"].startswith("application/json")
    assert_no_document(answer)


async def test_a_page_that_is_downloaded_is_none_here(
    client: httpx.AsyncClient, sandbox: str, context: ServerContext, key: str
) -> None:
    where = {"path": "/workspace/page.html"}
    (await client.put(f"/sandboxes/{sandbox}/files", params=where, content=PAGE)).raise_for_status()
    native = await client.get(f"/sandboxes/{sandbox}/files", params=where)
    assert native.headers["content-disposition"].startswith("attachment")
    sandbox_key = (await client.get(f"/sandboxes/{sandbox}")).json()["key"]
    daytona = await client.get(
        f"/daytona/toolbox/{sandbox_key}/files/download", params=where, headers={"Authorization": f"Bearer {key}"}
    )
    assert daytona.headers["content-disposition"].startswith("attachment")
    token = {"X-Access-Token": context.tokens.access(sandbox_key)}
    by_path = await client.get(f"/p/{sandbox_key}/49983/files", params=where, headers=token)
    named = {"E2b-Sandbox-Id": sandbox_key, "E2b-Sandbox-Port": "49983"}
    by_header = await client.get("/files", params=where, headers={**token, **named})
    for answer in (native, daytona, by_path, by_header):
        assert (answer.status_code, answer.content) == (200, PAGE)
    assert_no_document(native)
    assert_no_document(daytona)
    assert_no_document(by_path, FILE_POLICY)
    assert_no_document(by_header, FILE_POLICY)


async def test_what_a_command_prints_is_no_document(client: httpx.AsyncClient, sandbox: str) -> None:
    body = {"sandbox_id": sandbox, "command": f"echo '{PAGE.decode()}'"}
    assert_no_document(await client.post("/sandboxes/run-command", json=body))
    assert_no_document(await client.post("/sandboxes/run-command", json=body, headers={"Accept": "text/event-stream"}))


async def test_the_mcp_port_answers_no_document(client: httpx.AsyncClient, sandbox: str) -> None:
    assert_no_document(await client.get(f"/p/{sandbox}/6060/health"))
    assert_no_document(await client.get(f"/p/{sandbox}/6060/{MARKED}"))


async def test_nothing_here_is_a_service_worker_and_an_old_one_is_ended(stranger: httpx.AsyncClient) -> None:
    for path in ("/docs/swagger-ui-bundle.js", "/openapi.json", "/files?signature=x", "/p/x/49983/files"):
        answer = await stranger.get(path, headers={"Service-Worker": "script"})
        assert answer.status_code == 403
        assert '"storage"' in answer.headers["clear-site-data"]
        assert_no_document(answer)
    assert "clear-site-data" not in (await stranger.get("/openapi.json")).headers


async def test_the_docs_run_their_own_scripts_alone_and_keep_no_key(stranger: httpx.AsyncClient) -> None:
    page = await stranger.get("/docs")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    nonce = policy["script-src"]
    assert re.fullmatch(r"'nonce-[\w-]{20,}'", nonce), "'self' would be every byte of every sandbox"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert "persistAuthorization: false" in page.text
    assert nonce not in (await stranger.get("/docs")).headers["content-security-policy"]
