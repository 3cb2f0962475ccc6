"""What an application's answers may say to a browser: on its own host, and on the API's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from paddock.gateway.origin import API_HEADERS
from tests.gateway.bed import PORT, Bed, Box

ATTACKER = Path(__file__).with_name("attacker.py").read_text()
BEYOND_THE_ORIGIN = {
    "Alt-Svc": 'h3=":9999"; ma=9999999',
    "Clear-Site-Data": '"*"',
    "Expect-CT": "max-age=9999",
    "Origin-Agent-Cluster": "?0",
    "Public-Key-Pins": 'pin-sha256="x"; max-age=9999',
    "Strict-Transport-Security": "max-age=9999; includeSubDomains",
}
FOR_THE_ORIGIN = {
    "Accept-CH": "Sec-CH-UA-Model",
    "Attribution-Reporting-Register-Source": "{}",
    "Critical-CH": "Sec-CH-UA-Model",
    "NEL": '{"report_to": "x", "max_age": 9999}',
    "Permissions-Policy": "camera=*",
    "Refresh": "0; url=/docs",
    "Report-To": '{"group": "x", "max_age": 9999, "endpoints": []}',
    "Reporting-Endpoints": 'x="https://evil.example/"',
    "Sec-Session-Registration": "(ES256)",
    "Service-Worker-Allowed": "/",
    "Set-Login": "logged-in",
    "Speculation-Rules": '"/rules.json"',
    "Use-As-Dictionary": 'match="/*"',
}
OPENED = {"Cross-Origin-Opener-Policy": "unsafe-none", "Cross-Origin-Resource-Policy": "cross-origin"}
HARMLESS = {"X-Total": "3", "Link": '</2>; rel="next"', "ETag": '"1"', "Access-Control-Allow-Origin": "*"}


@pytest.fixture(scope="module")
def speaker(bed: Bed) -> Iterator[Box]:
    """Says what it is asked to say."""
    box = bed.create()
    with bed.api() as api:
        body = {"sandbox_id": box.sandbox_id, "path": "/workspace/attacker.py", "content": ATTACKER}
        api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run(f"python3 /workspace/attacker.py {PORT + 1}", background=True)
    box.run(
        "python3 - <<'END'\nimport socket, time\n"
        f"while socket.socket().connect_ex(('127.0.0.1', {PORT + 1})): time.sleep(0.05)\nEND",
        timeout=60,
    )
    yield box
    box.delete()


def saying(headers: dict[str, str] | list[tuple[str, str]], status: int = 200) -> str:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    return "?answer=" + quote(json.dumps({"status": status, "headers": pairs, "body": "said"}))


def by_host(box: Box, target: str, **headers: str) -> httpx.Response:
    with box.visitor(PORT + 1, **headers) as visitor:
        return visitor.get(f"/{target}")


def by_path(box: Box, target: str, **headers: str) -> httpx.Response:
    with box.bed.api() as api:
        return api.get(f"/p/{box.key}/{PORT + 1}/{target}", headers=headers)


def by_header(box: Box, target: str, **headers: str) -> httpx.Response:
    with box.bed.api() as api:
        named = {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": str(PORT + 1)}
        return api.get(f"/{target}", headers={**named, **headers})


@pytest.mark.parametrize("ask", [by_path, by_header])
@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_on_the_apis_origin_no_answer_is_a_document_or_speaks_for_the_origin(
    speaker: Box, ask: type, status: int
) -> None:
    own_policy = {"Content-Security-Policy": "sandbox allow-scripts allow-same-origin", "X-Content-Type-Options": "x"}
    answer = ask(speaker, saying(BEYOND_THE_ORIGIN | FOR_THE_ORIGIN | OPENED | own_policy | HARMLESS, status))
    assert (answer.status_code, answer.text) == (status, "said")
    for name in BEYOND_THE_ORIGIN | FOR_THE_ORIGIN:
        assert name == "Origin-Agent-Cluster" or name not in answer.headers
    for name, value in API_HEADERS.items():
        assert value in answer.headers.get_list(name)
        assert name == "Content-Security-Policy" or answer.headers.get_list(name) == [value]
    # Each policy is kept to on its own, so that of the application may only take away.
    assert own_policy["Content-Security-Policy"] in answer.headers.get_list("content-security-policy")
    assert {name: answer.headers[name] for name in HARMLESS} == HARMLESS


@pytest.mark.parametrize("listed", ["Content-Security-Policy", "X-Content-Type-Options, Cross-Origin-Opener-Policy"])
def test_naming_our_headers_as_the_connections_own_does_not_remove_them(speaker: Box, listed: str) -> None:
    answer = by_path(speaker, saying({"Connection": listed}))
    for name, value in API_HEADERS.items():
        assert answer.headers[name] == value


def test_on_its_own_host_a_page_speaks_for_itself_and_not_for_the_domain(speaker: Box) -> None:
    answer = by_host(speaker, saying(BEYOND_THE_ORIGIN | FOR_THE_ORIGIN | OPENED | HARMLESS))
    for name in BEYOND_THE_ORIGIN:
        assert name not in answer.headers
    expected = FOR_THE_ORIGIN | OPENED | HARMLESS
    assert {name: answer.headers[name] for name in expected} == expected
    assert "content-security-policy" not in answer.headers


def test_whoever_opens_a_page_keeps_no_hold_on_it_unless_the_page_says_so(speaker: Box) -> None:
    assert by_host(speaker, saying({})).headers["cross-origin-opener-policy"] == "same-origin-allow-popups"
    strict = {"Cross-Origin-Opener-Policy": "same-origin"}
    assert by_host(speaker, saying(strict)).headers.get_list("cross-origin-opener-policy") == ["same-origin"]


COOKIES = [
    ("Set-Cookie", "a=1; Domain=localhost; HttpOnly"),
    ("set-cookie", "b=2;domain = .localhost ; Path=/"),
    ("Set-Cookie", "c=3; Path=/; SameSite=Lax"),
    ("Set-Cookie", "paddock_port=mine; Path=/"),
    ("Set-Cookie", " __Host-paddock_port =mine; Path=/; Secure"),
]


def test_a_cookie_is_for_the_host_that_sets_it_and_never_the_gateways(speaker: Box) -> None:
    found = by_host(speaker, saying(COOKIES)).headers.get_list("set-cookie")
    assert found == ["a=1; HttpOnly", "b=2; Path=/", "c=3; Path=/; SameSite=Lax"]


def test_in_the_path_form_a_programs_cookies_are_for_the_port_and_a_browser_gets_none(speaker: Box) -> None:
    prefix = f"/p/{speaker.key}/{PORT + 1}/"
    found = by_path(speaker, saying(COOKIES)).headers.get_list("set-cookie")
    assert found == [f"a=1; HttpOnly; Path={prefix}", f"b=2; Path={prefix}", f"c=3; SameSite=Lax; Path={prefix}"]
    asked = saying([*COOKIES, ("WWW-Authenticate", "Basic")], 401)
    for browser in ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, {"User-Agent": "Mozilla/5.0"}):
        answer = by_path(speaker, asked, **browser)
        assert "set-cookie" not in answer.headers
        assert "www-authenticate" not in answer.headers
    assert by_path(speaker, asked).headers["www-authenticate"] == "Basic"


def test_the_gateways_own_answers_are_no_documents_of_the_apis_origin(bed: Bed, speaker: Box) -> None:
    with bed.api() as api:
        closed = api.get(f"/p/{speaker.key}/3999/", headers={"Accept": "text/html"})
        malformed = api.get("/p/x/y/")
        html = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        refused = api.get(f"/p/{speaker.key}/{PORT + 1}/", headers=html)
    for answer in (closed, malformed, refused):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "script" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    with speaker.visitor(3999, key=None, Accept="text/html") as stranger:
        framed = stranger.get("/")
    assert framed.status_code == 403
    assert "frame-ancestors" not in framed.headers["content-security-policy"], "previews are shown in frames"


@pytest.mark.parametrize("by", ["api", "host"])
def test_too_many_cookies_are_cleared_on_the_apis_host(bed: Bed, speaker: Box, by: str) -> None:
    """A page can set cookies for the parent domain, up to ten times what a head may have."""
    cookies = "; ".join(f"bomb{number}={'x' * 4000}" for number in range(150))
    host = "localhost" if by == "api" else speaker.host(PORT + 1)
    answer = httpx.get(f"{bed.url}/docs", headers={"Host": host, "Cookie": cookies})
    assert answer.status_code == 431
    assert answer.headers.get("clear-site-data") == ('"cookies"' if by == "api" else None)
    assert "ookies" in answer.text
    long_path = httpx.get(f"{bed.url}/docs?{'x' * 64_000}", headers={"Cookie": f"a={'x' * 2000}"})
    assert long_path.status_code == 431
    assert "clear-site-data" not in long_path.headers, "whoever makes a browser ask so must not log its user out"
