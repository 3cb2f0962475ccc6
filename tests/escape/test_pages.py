"""What the doctor says of headers with which a sandbox's page is answered."""

from __future__ import annotations

import httpx
import pytest

from paddock.doctor.server import pages
from paddock.doctor.server.hostile_app import HEADERS

GOOD_BY_PATH = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
GOOD_BY_HOST = {"Cross-Origin-Opener-Policy": "same-origin-allow-popups"}
GET = httpx.Request("GET", "http://doctor/p/abc/3000/")


def test_good_headers_are_not_complained_of() -> None:
    cookie = {"Set-Cookie": "a=1; Path=/p/abc/3000/"}
    by_path = httpx.Response(200, headers=GOOD_BY_PATH | cookie, request=GET)
    assert pages.on_the_apis_origin(by_path, "/p/abc/3000/", browser=False) is None
    assert pages.on_its_own_host(httpx.Response(200, headers=GOOD_BY_HOST, request=GET)) is None


@pytest.mark.parametrize("added", HEADERS[3:], ids=lambda header: header[0])
def test_every_hostile_header_that_is_passed_on_is_complained_of(added: tuple[str, str]) -> None:
    by_path = httpx.Response(200, headers=[*GOOD_BY_PATH.items(), added], request=GET)
    by_host = httpx.Response(200, headers=[*GOOD_BY_HOST.items(), added], request=GET)
    told = [pages.on_the_apis_origin(by_path, "/p/abc/3000/", browser=False), pages.on_its_own_host(by_host)]
    assert any(told)


@pytest.mark.parametrize("taken", GOOD_BY_PATH)
def test_every_header_of_ours_that_is_missing_is_complained_of(taken: str) -> None:
    left = {name: value for name, value in GOOD_BY_PATH.items() if name != taken}
    answer = httpx.Response(200, headers=left, request=GET)
    assert pages.on_the_apis_origin(answer, "/p/abc/3000/", browser=False)
