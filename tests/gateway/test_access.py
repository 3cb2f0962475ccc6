"""Who may open a port, judged for every request; and what the code in the sandbox does not get to see of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from paddock.gateway.connections import Connections
from tests.gateway.bed import PORT, Bed, Box

BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/130 Safari/537.36",
    "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Site": "none",
}
MISSING = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
INVALID = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"


@pytest.fixture(scope="module")
def stranger_key(bed: Bed) -> str:
    return bed.new_key("mallory")


@pytest.fixture(scope="module")
def public_box(bed: Bed) -> Iterator[Box]:
    box = bed.create(public_ports=True).serve()
    yield box
    box.delete()


def seen(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {name.lower(): value for name, value in answer.json()["headers"]}


def link_to(box: Box, port: int = PORT, ttl: int = 60) -> dict[str, Any]:
    with box.bed.api() as api:
        answer = api.post(f"/sandboxes/{box.sandbox_id}/links", json={"port": port, "ttl": ttl})
    return dict(answer.raise_for_status().json())


def ticket_for(box: Box, port: int | None = PORT) -> str:
    with box.bed.api() as api:
        body = {} if port is None else {"port": port}
        return str(api.post(f"/sandboxes/{box.sandbox_id}/tickets", json=body).raise_for_status().json()["ticket"])


def test_nobody_gets_in_without_anything(box: Box) -> None:
    with box.visitor(key=None) as visitor:
        answer = visitor.get("/seen")
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.json() == {
        "sandboxId": box.key, "message": MISSING, "header": "e2b-traffic-access-token", "code": 403,
    }  # fmt: skip


def test_an_api_key_of_the_owner_opens_and_is_not_passed_on(box: Box) -> None:
    with box.visitor(key=None) as visitor:
        by_header = seen(visitor.get("/seen", headers={"X-API-Key": box.bed.key}))
        by_bearer = seen(visitor.get("/seen", headers={"Authorization": f"Bearer {box.bed.key}"}))
    assert box.bed.key not in json.dumps(by_header) + json.dumps(by_bearer)
    assert "x-api-key" not in by_header
    assert "authorization" not in by_bearer


def test_the_applications_own_credentials_are_passed_on(public_box: Box) -> None:
    foreign = "e2b_" + "0" * 40
    with public_box.visitor(key=None) as visitor:
        headers = seen(visitor.get("/seen", headers={"Authorization": "Bearer mine", "X-API-Key": foreign}))
    assert (headers["authorization"], headers["x-api-key"]) == ("Bearer mine", foreign)


@pytest.mark.parametrize("key", ["stranger", "e2b_" + "1" * 40])
def test_another_users_key_does_not_open(box: Box, stranger_key: str, key: str) -> None:
    with box.visitor(key=stranger_key if key == "stranger" else key) as visitor:
        assert visitor.get("/seen").status_code == 403


def test_the_traffic_token_opens_and_is_not_passed_on(box: Box) -> None:
    token = box.bed.context.tokens.traffic(box.key)
    with box.visitor(key=None, **{"E2B-Traffic-Access-Token": token}) as visitor:
        assert "e2b-traffic-access-token" not in seen(visitor.get("/seen"))
    with box.visitor(key=None, **{"E2B-Traffic-Access-Token": token[:-1] + "x"}) as visitor:
        refused = visitor.get("/seen")
    assert (refused.status_code, refused.json()["message"]) == (403, INVALID)


def test_tokens_of_another_sandbox_or_for_another_purpose_do_not_open(box: Box, public_box: Box) -> None:
    tokens = box.bed.context.tokens
    for token in (tokens.traffic(public_box.key), tokens.access(box.key), ""):
        with box.visitor(key=None, **{"e2b-traffic-access-token": token}) as visitor:
            assert visitor.get("/seen").status_code == 403


def test_a_locked_out_user_serves_nobody(bed: Bed) -> None:
    """Whatever opened the port before: a public one, a link, the traffic token, the user's own key."""
    key = bed.new_key("frank")
    with bed.api(key) as api:
        made = api.post("/sandboxes/create", json={"user_id": "frank", "public_ports": True}).raise_for_status().json()
        box = Box(bed, made["sandbox_id"], made["key"]).serve()
        path = f"/sandboxes/{box.sandbox_id}/links"
        link = api.post(path, json={"port": PORT, "ttl": 60}).raise_for_status().json()["url"].partition("?")[2]
    token = {"e2b-traffic-access-token": bed.context.tokens.traffic(box.key)}
    ways: list[tuple[str | None, dict[str, str], str]] = [
        (None, {}, "/seen"), (None, {}, f"/seen?{link}"), (None, token, "/seen"), (key, {}, "/seen"),
    ]  # fmt: skip

    def answers() -> list[int]:
        found = []
        for shown, headers, path in ways:
            with box.visitor(key=shown, **headers) as visitor:
                found.append(visitor.get(path).status_code)
        return found

    assert answers() == [200] * 4
    with bed.api() as admin:
        admin.patch("/users/frank", json={"disabled": True}).raise_for_status()
        assert answers() == [403] * 4
        with box.visitor() as visitor:
            assert visitor.get("/seen").status_code == 200, "an admin may look what it is"
        admin.patch("/users/frank", json={"disabled": False}).raise_for_status()
        assert answers() == [200] * 4
    box.delete()


def test_the_url_of_an_exposed_port_for_programs_is_opened_by_one(bed: Bed, box: Box, public_box: Box) -> None:
    """Python resolves no names below localhost, and sends no key here."""
    for each in (box, public_box):
        with bed.api() as api:
            body = {"sandbox_id": each.sandbox_id, "port": PORT}
            exposed = api.post("/sandboxes/expose-port", json=body).raise_for_status().json()
        program_url = httpx.URL(exposed["program_url"])
        assert program_url.host == "localhost" and httpx.URL(exposed["url"]).host.endswith(".localhost")
        assert seen(httpx.get(program_url, timeout=60))["host"]
        stripped = program_url.copy_with(query=None)
        assert (httpx.get(stripped, timeout=60).status_code == 200) is (each is public_box)


def test_public_ports_are_open_to_everybody(public_box: Box) -> None:
    with public_box.visitor(key=None) as visitor:
        assert visitor.get("/seen").status_code == 200


def test_a_public_sandbox_still_hides_our_keys_from_its_code(public_box: Box) -> None:
    with public_box.visitor() as visitor:
        assert public_box.bed.key not in json.dumps(seen(visitor.get("/seen")))


def test_a_link_opens_one_port_and_a_browser_gets_a_cookie_for_the_rest(box: Box) -> None:
    link = link_to(box)
    target = link["url"].partition(box.host())[2]
    with box.visitor(key=None, **BROWSER) as browser:
        sent_on = browser.get(target)
        assert (sent_on.status_code, sent_on.headers["location"]) == (302, "/")
        cookie = sent_on.headers["set-cookie"]
        assert cookie.startswith("paddock_port=")
        assert all(part in cookie for part in ("; Path=/;", "; HttpOnly", "; SameSite=Lax", "; Max-Age="))
        assert browser.get("/seen", headers={"Cookie": "a=1; " + cookie.partition(";")[0]}).status_code == 200
        headers = seen(browser.get("/seen", headers={"Cookie": "a=1; " + cookie.partition(";")[0]}))
    assert headers["cookie"] == "a=1"
    with box.visitor(3999, key=None) as visitor:
        assert visitor.get(target).status_code == 403
        assert visitor.get("/", headers={"Cookie": cookie.partition(";")[0]}).status_code == 403


def test_a_link_works_for_programs_without_a_detour(box: Box) -> None:
    token = link_to(box)["url"].partition("paddock_link=")[2]
    with box.visitor(key=None) as visitor:
        answer = visitor.get(f"/seen?x=1&paddock_link={token}&y=2")
        assert answer.json()["target"] == "/seen?x=1&y=2"


def test_over_tls_the_cookie_is_bound_to_its_host(box: Box) -> None:
    target = link_to(box)["url"].partition(box.host())[2]
    with box.visitor(key=None, **BROWSER, **{"X-Forwarded-Proto": "https"}) as browser:
        cookie = browser.get(target).headers["set-cookie"]
    assert cookie.startswith("__Host-paddock_port=")
    assert cookie.endswith("; Secure")


def test_a_link_never_leads_to_another_site(box: Box) -> None:
    token = link_to(box)["url"].partition("paddock_link=")[2]
    with box.visitor(key=None, **BROWSER) as browser:
        for path in ("//evil.example/x", "/\\evil.example/x"):
            request = httpx.Request("GET", box.bed.url, headers=browser.headers)
            request.extensions["target"] = f"{path}?paddock_link={token}".encode()
            answer = browser.send(request)
            assert answer.headers["location"] == "/evil.example/x"


def test_an_old_or_forged_link_does_not_open(box: Box) -> None:
    tokens = box.bed.context.tokens
    now = box.bed.context.clock.now()
    good = tokens.sign_link(box.key, PORT, now + 60)
    later = f"{int(now) + 9999}.{good.partition('.')[2]}"
    for token in (tokens.sign_link(box.key, PORT, now - 1), later, "1.2", "x", tokens.cookie(box.key, PORT, now + 60)):
        with box.visitor(key=None) as visitor:
            assert visitor.get(f"/seen?paddock_link={token}").status_code == 403


def test_a_ticket_is_good_once(box: Box) -> None:
    ticket = ticket_for(box)
    with box.visitor(key=None) as visitor:
        assert visitor.get(f"/seen?paddock_ticket={ticket}").json()["target"] == "/seen"
        assert visitor.get(f"/seen?paddock_ticket={ticket}").status_code == 403


def test_a_ticket_is_for_one_port_of_one_sandbox(box: Box, public_box: Box) -> None:
    for ticket in (ticket_for(box, 3999), ticket_for(public_box), ticket_for(box, None)):
        with box.visitor(key=None) as visitor:
            assert visitor.get(f"/seen?paddock_ticket={ticket}").status_code == 403


def test_a_browser_that_comes_back_with_a_used_ticket_has_its_cookie(box: Box) -> None:
    ticket = ticket_for(box)
    with box.visitor(key=None, **BROWSER) as browser:
        cookie = browser.get(f"/seen?paddock_ticket={ticket}").headers["set-cookie"].partition(";")[0]
        assert browser.get(f"/seen?paddock_ticket={ticket}", headers={"Cookie": cookie}).status_code == 200


class TestAnotherSitesPage:
    """A cookie is sent by the browser, whoever made it ask."""

    @pytest.fixture
    def cookie(self, box: Box) -> str:
        return f"paddock_port={box.bed.context.tokens.cookie(box.key, PORT, box.bed.context.clock.now() + 60)}"

    @pytest.mark.parametrize(
        ("method", "headers"),
        [
            ("POST", {"Origin": "https://evil.example"}),
            ("POST", {"Origin": "null"}),
            ("GET", {"Origin": "https://evil.example", "Connection": "Upgrade", "Upgrade": "websocket"}),
            ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
            ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
            ("POST", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
            ("POST", {}),
        ],
    )
    def test_cannot_use_it(self, box: Box, cookie: str, method: str, headers: dict[str, str]) -> None:
        with box.visitor(key=None, Cookie=cookie) as visitor:
            assert visitor.request(method, "/seen", headers=headers).status_code == 403

    @pytest.mark.parametrize(
        ("method", "headers"),
        [
            ("GET", {}),
            ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
            ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}),
            ("POST", {"Sec-Fetch-Site": "same-origin"}),
        ],
    )
    def test_does_not_keep_the_page_itself_from_it(
        self, box: Box, cookie: str, method: str, headers: dict[str, str]
    ) -> None:
        with box.visitor(key=None, Cookie=cookie) as visitor:
            assert visitor.request(method, "/seen", headers=headers).status_code == 200
            own = {"Origin": f"http://{box.host()}"}
            assert visitor.request("POST", "/seen", headers=own).status_code == 200


class TestThePathForm:
    @pytest.mark.parametrize("name", ["sandbox_id", "key"])
    def test_names_the_sandbox_by_id_or_key(self, box: Box, name: str) -> None:
        prefix = f"/p/{getattr(box, name)}/{PORT}"
        with box.bed.api() as api:
            answer = api.get(f"{prefix}/seen?x=1")
            bare = api.get(f"{prefix}?paddock=1")
        assert answer.json()["target"] == "/seen?x=1"
        assert seen(answer)["x-forwarded-prefix"] == prefix
        assert bare.json()["target"] == "/?paddock=1"

    def test_has_links_of_its_own_and_no_cookie(self, box: Box) -> None:
        link = link_to(box)
        path, _, by_path = link["path"].partition("?")
        by_host = link["url"].partition("?")[2]
        with httpx.Client(base_url=box.bed.url, headers={"Accept": "text/html"}) as program:
            served = program.get(f"{path}seen?{by_path}")
            assert served.json()["target"] == "/seen"
            assert "set-cookie" not in served.headers
            assert program.get(f"{path}seen?{by_host}").status_code == 403
            headers = {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": str(PORT)}
            assert program.get(f"/seen?{by_path}", headers=headers).status_code == 200
            assert program.get(f"/seen?{by_host}", headers=headers).status_code == 403
        with box.visitor(key=None) as visitor:
            assert visitor.get(f"/seen?{by_host}").status_code == 200
            assert visitor.get(f"/seen?{by_path}").status_code == 403

    def test_takes_neither_a_ticket_nor_a_cookie(self, box: Box) -> None:
        cookie = box.bed.context.tokens.cookie(box.key, PORT, box.bed.context.clock.now() + 60)
        ticket = ticket_for(box)
        with httpx.Client(base_url=box.bed.url) as program:
            seen_at = f"/p/{box.key}/{PORT}/seen"
            assert program.get(seen_at, headers={"Cookie": f"paddock_port={cookie}"}).status_code == 403
            assert program.get(f"{seen_at}?paddock_ticket={ticket}").status_code == 403
        with box.visitor(key=None) as visitor:
            assert visitor.get(f"/seen?paddock_ticket={ticket}").status_code == 200, "it was not used up"

    @pytest.mark.parametrize(
        "asked",
        [
            {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
            {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
            {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "object"},
            {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
            {"Sec-Fetch-Mode": "same-origin", "Sec-Fetch-Dest": "worker"},
            {"Upgrade-Insecure-Requests": "1"},
            {"Service-Worker": "script", "Sec-Fetch-Dest": "serviceworker"},
        ],
    )
    def test_gives_a_browser_nothing_to_show_or_to_run(self, box: Box, asked: dict[str, str]) -> None:
        with box.bed.api() as api:
            by_key = api.get(f"/p/{box.key}/{PORT}/seen", headers={**asked, "Accept": "text/html"})
            by_id = api.get(f"/p/{box.sandbox_id}/{PORT}/seen", headers=asked)
        assert (by_key.status_code, by_id.status_code) == (403, 403)
        assert f"http://{box.host()}/" in by_key.text
        assert box.key not in by_id.text, "an id can be guessed, a key cannot"
        assert ("clear-site-data" in by_key.headers) is ("Service-Worker" in asked)

    def test_serves_what_a_page_fetches(self, box: Box) -> None:
        asked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        with box.bed.api() as api:
            answer = api.get(f"/p/{box.key}/{PORT}/seen", headers={**asked, "Cookie": "dashboard=secret"})
        assert answer.status_code == 200
        assert "cookie" not in seen(answer), "the browser keeps those for the API's host"

    def test_does_not_tell_strangers_which_ids_exist(self, box: Box, stranger_key: str) -> None:
        with box.bed.api(stranger_key) as api:
            there = api.get(f"/p/{box.sandbox_id}/{PORT}/seen")
            not_there = api.get(f"/p/alice_00000000/{PORT}/seen")
        assert there.status_code == not_there.status_code == 502
        assert there.json()["message"] == not_there.json()["message"] == "The sandbox was not found"


def test_the_header_form_needs_both_headers(box: Box) -> None:
    with box.bed.api() as api:
        both = {"E2b-Sandbox-Id": f"{box.key}-abc", "E2b-Sandbox-Port": str(PORT)}
        headers = seen(api.get("/seen", headers=both))
        assert not [name for name in headers if name.startswith("e2b-")]
        for name in both:
            assert api.get("/seen", headers={name: both[name]}).status_code == 400
        for port in ("0", "65536", "x", "-1"):
            assert api.get("/seen", headers={**both, "E2b-Sandbox-Port": port}).status_code == 400


def test_the_server_inside_is_told_where_the_request_came_from(box: Box) -> None:
    with box.visitor(**{"X-Forwarded-For": "203.0.113.9"}) as visitor:
        headers = seen(visitor.get("/seen"))
    assert headers["x-forwarded-for"] == "203.0.113.9, 127.0.0.1"
    assert (headers["x-forwarded-proto"], headers["x-forwarded-host"]) == ("http", box.host())


def test_only_a_proxy_in_front_is_believed_who_is_behind_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": "bank.example", "X-Forwarded-Proto": "https"}
    monkeypatch.setattr(Connections, "is_proxy", lambda *_: False)
    with box.visitor(**claimed) as visitor:
        headers = seen(visitor.get("/seen"))
    told = [headers[f"x-forwarded-{name}"] for name in ("for", "host", "proto")]
    assert told == ["127.0.0.1", box.host(), "http"]


async def test_a_ticket_opens_a_websocket_of_the_api_once(box: Box) -> None:
    ticket = ticket_for(box, None)
    url = f"ws://127.0.0.1:{box.bed.port}/sandboxes/{box.sandbox_id}/terminal?command=true&ticket={ticket}"
    async with connect(url, proxy=None) as ws:
        assert json.loads(await ws.recv())["type"] == "ready"
    async with connect(url, proxy=None) as ws:
        with pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
