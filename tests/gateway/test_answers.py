"""What the gateway says itself: the exact words for SDKs, a page for people."""

from __future__ import annotations

import httpx
import pytest

from paddock import errors
from paddock.gateway import responses
from paddock.gateway.address import AddressForm
from tests.gateway.bed import Bed, Box

BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/130 Safari/537.36"}


def test_a_closed_port(box: Box) -> None:
    with box.visitor(3999) as visitor:
        answer = visitor.get("/")
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.json() == {
        "sandboxId": box.key,
        "message": "The sandbox is running but port is not open",
        "port": 3999,
        "code": 502,
    }


def test_a_closed_port_for_people_looks_again_by_itself(box: Box) -> None:
    with box.visitor(3999, **BROWSER) as visitor:
        answer = visitor.get("/")
        head = visitor.head("/")
    assert answer.status_code == head.status_code == 502
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert 'http-equiv="refresh"' in answer.text
    assert "Nothing listens on port 3999 yet" in answer.text
    assert head.content == b"" and head.headers["content-length"] == answer.headers["content-length"]


@pytest.mark.parametrize(
    "host", ["3000-i00000000000000000000.localhost", "3000-nosuch.localhost", "3000-nosuch-x.any.domain"]
)
def test_a_sandbox_that_never_was(bed: Bed, host: str) -> None:
    with bed.api() as api:
        answer = api.get("/health", headers={"Host": host})
    key = host.partition("-")[2].partition(".")[0].partition("-")[0]
    assert answer.status_code == 502
    assert answer.json() == {"sandboxId": key, "message": "The sandbox was not found", "code": 502}


def test_a_sandbox_that_was_deleted(bed: Bed) -> None:
    box = bed.create()
    box.delete()
    with box.visitor() as visitor:
        answer = visitor.get("/")
        page = visitor.get("/", headers=BROWSER)
    assert answer.json()["message"] == "The sandbox was not found"
    assert page.status_code == 502
    assert "There is no such sandbox" in page.text


def test_a_private_port_for_people(box: Box) -> None:
    with box.visitor(key=None, **BROWSER) as visitor:
        page = visitor.get("/")
    assert page.status_code == 403
    assert "This port is private" in page.text


@pytest.mark.parametrize("host", ["0-x.localhost", "65536-x.localhost", "99999999-x.localhost", "3000-.localhost"])
def test_a_host_that_names_no_port_or_no_sandbox(bed: Bed, host: str) -> None:
    answer = httpx.get(bed.url, headers={"Host": host})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "host", ["localhost", "10-0-0-5.example.org", "paddock.example.org", "127.0.0.1", "[::1]:8080"]
)
def test_the_api_answers_by_any_other_name(bed: Bed, host: str) -> None:
    assert httpx.get(f"{bed.url}/health", headers={"Host": host}).json()["status"] == "ok"


def test_a_page_shows_nothing_of_the_request_as_markup() -> None:
    refusal = responses.unavailable(errors.Unavailable("<script>alert(1)</script> $title"))
    page = refusal.answer("<b>box</b>", AddressForm.HOST, as_html=True).body.decode()
    assert "<script>" not in page and "<b>box" not in page
    assert "&lt;b&gt;box" in page
