"""Whatever goes wrong is a typed error that says what to do."""

from __future__ import annotations

import httpx
import pytest

from paddock import errors
from paddock.client import ServerUnreachable, SyncSandboxClient, UnexpectedAnswer
from tests.client.script import answer, failure, refuse, script


def call(*steps: object, **options: object) -> object:
    return script(*steps).client(retries=0, **options).get_status("alice_1f2e3d4c")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", [kind for kind in errors.every_error() if "code" in vars(kind)], ids=lambda kind: kind.code
)
def test_every_error_of_the_wire_comes_back_as_its_class(kind: type[errors.PaddockError]) -> None:
    with pytest.raises(errors.PaddockError) as caught:
        call(failure(kind.code, kind.status, "said so"))
    assert caught.value.code == kind.code
    assert str(caught.value) == "said so"
    assert caught.value.details == {"a": 1}
    assert caught.value.request_id == "r_1"


def test_an_error_of_the_servers_own_does_not_stand_in_for_the_wires() -> None:
    """Both may live in one process: a client over an ASGI transport, or a server that is a client of another."""
    import paddock.lifecycle.engine  # has a private kind of Conflict, which takes other arguments

    assert issubclass(paddock.lifecycle.engine.TransitionLost, errors.Conflict)
    with pytest.raises(errors.Conflict) as caught:
        call(failure("conflict", 409))
    assert type(caught.value) is errors.Conflict


def test_a_code_that_a_newer_server_made_up_is_known_by_its_status() -> None:
    with pytest.raises(errors.Conflict):
        call(failure("brand_new", 409))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, errors.Unavailable), (504, errors.Unavailable), (404, errors.NotFound), (413, errors.PayloadTooLarge)],
)
def test_a_proxy_that_answers_in_html_is_understood(status: int, kind: type[errors.PaddockError]) -> None:
    with pytest.raises(kind, match=f"answered {status}.*<h1>Oops</h1>"):
        call(lambda request: httpx.Response(status, html="<h1>Oops</h1>"))


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"error": "no"}', b"\xff\xfe"])
def test_a_body_that_is_no_error_of_ours_does_no_harm(body: bytes) -> None:
    with pytest.raises(errors.PaddockError, match="answered 500"):
        call(lambda request: httpx.Response(500, content=body))


def test_a_redirect_is_not_followed_with_the_key_but_explained() -> None:
    with pytest.raises(errors.PaddockError, match="redirects to https://elsewhere"):
        call(lambda request: httpx.Response(301, headers={"Location": "https://elsewhere"}))


@pytest.mark.parametrize("step", [answer({"hello": "world"}), lambda request: httpx.Response(200, html="<p>hi")])
def test_another_server_on_the_port_is_recognised(step: object) -> None:
    with pytest.raises(UnexpectedAnswer, match="Is it a Paddock server"):
        call(step)


def test_a_server_that_is_not_there_is_named_with_the_way_to_start_one() -> None:
    with pytest.raises(ServerUnreachable, match=r"http://paddock\.test.*`paddock up`") as caught:
        call(refuse)
    assert isinstance(caught.value, errors.Unavailable)
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[bad", "http://host:port", "http://host:99999"])
def test_a_url_that_is_none_is_said_to_be(url: str) -> None:
    with pytest.raises(errors.Invalid, match="http://host:port"):
        SyncSandboxClient(url)


@pytest.mark.parametrize("key", ["se\ncret", "sécret", "se cret", "se\x00cret"])
def test_a_key_that_is_none_is_not_shown_in_the_complaint(key: str) -> None:
    with pytest.raises(errors.Unauthorized) as caught:
        SyncSandboxClient("http://paddock.test", api_key=key)
    assert "cret" not in str(caught.value)


def test_no_key_is_only_a_problem_when_the_server_wants_one() -> None:
    health = {"status": "ok", "version": "1", "provider": "local", "database": "ok", "server_id": "s"}
    assert script(answer(health)).client(api_key=None).health().status == "ok"
    with pytest.raises(errors.Unauthorized, match=r"PADDOCK_API_KEY.*paddock keys create"):
        call(failure("unauthorized", 401), api_key=None)
    with pytest.raises(errors.Unauthorized, match="said so"):
        call(failure("unauthorized", 401, "said so"))


def test_a_degraded_server_says_so_in_its_health() -> None:
    document = {"status": "degraded", "version": "1", "provider": "local", "database": "unavailable", "server_id": "s"}
    server = script(answer(document, 503))
    assert server.client().health().database == "unavailable"
    assert len(server.requests) == 1
