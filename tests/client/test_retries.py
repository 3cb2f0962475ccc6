"""Trying again: only where it is safe, never twice what must happen once, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paddock.client import AnswerLost, ServerUnreachable
from paddock.client.retry import MAX_PAUSE_S, Repeat, Tries, backoff
from paddock.errors import ProviderRefused, QuotaExceeded, TooManyRequests, Unavailable
from tests.client.script import BOX, ENDED, RESULT, answer, broken, failure, refuse, script

WRITTEN = {
    "success": True,
    "file": {
        "path": "/workspace/a",
        "name": "a",
        "type": "file",
        "size": 1,
        "mode": "0644",
        "owner": "user",
        "group": "user",
        "modified_at": "2030-01-31T12:00:00.000Z",
    },
}
LOST = [httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.WriteError]


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_reply_does_not_run_a_command_twice(lost: type[httpx.TransportError]) -> None:
    server = script(broken(lost), answer(RESULT))
    assert server.client().run_command("alice_1f2e3d4c", "echo hi").stdout == "hi\n"
    first, second = server.header("idempotency-key")
    assert first and first == second
    assert server.bodies[0] == server.bodies[1]


async def test_a_lost_reply_does_not_make_two_sandboxes() -> None:
    server = script(broken(httpx.ReadError), failure("unavailable", 503), answer(BOX))
    async with server.async_client() as client:
        assert (await client.create_sandbox("alice")).sandbox_id == "alice_1f2e3d4c"
    keys = server.header("idempotency-key")
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_two_calls_have_two_idempotency_keys() -> None:
    server = script(answer(RESULT))
    client = server.client()
    client.run_command("alice_1f2e3d4c", "date")
    client.run_command("alice_1f2e3d4c", "date")
    client.run_command("alice_1f2e3d4c", "date", idempotency_key="mine")
    first, second, third = server.header("idempotency-key")
    assert first != second
    assert third == "mine"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("write_stdin", ("alice_1f2e3d4c", "p_0123456789abcdef", "yes\n")),
        ("send_signal", ("alice_1f2e3d4c", "p_0123456789abcdef")),
        ("start_process", ("alice_1f2e3d4c", "sleep 1")),
        ("move_file", ("alice_1f2e3d4c", "/a", "/b")),
        ("create_key", ("laptop",)),
        ("create_user", ("bob",)),
    ],
)
def test_what_must_happen_once_is_sent_once(method: str, arguments: tuple[str, ...]) -> None:
    for step in (broken(httpx.ReadError), failure("unavailable", 503, **{"Retry-After": "0"})):
        server = script(step)
        with pytest.raises(Unavailable):
            getattr(server.client(), method)(*arguments)
        assert len(server.requests) == 1


def test_what_was_never_sent_may_always_be_sent_again() -> None:
    server = script(refuse, refuse, answer(ENDED))
    assert server.client().start_process("alice_1f2e3d4c", "sleep 1").pid == 7
    assert len(server.requests) == 3


async def test_an_upload_from_an_iterator_is_not_sent_again_once_it_has_begun() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"once"

    server = script(broken(httpx.WriteError))
    async with server.async_client() as client:
        with pytest.raises(AnswerLost):
            await client.upload("alice_1f2e3d4c", "/workspace/a", chunks())
    assert len(server.requests) == 1


def test_an_upload_from_an_iterator_survives_a_refused_connection_whole() -> None:
    server = script(refuse, answer(WRITTEN))
    server.client().upload("alice_1f2e3d4c", "/workspace/a", iter([b"on", b"ce"]))
    assert len(server.requests) == 2
    assert server.requests[-1].content == b"once"


async def test_bytes_and_local_files_are_sent_again_whole(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"twice")
    for source in (b"twice", local):
        server = script(broken(httpx.ReadError), answer(WRITTEN))
        async with server.async_client() as client:
            await client.upload("alice_1f2e3d4c", "/workspace/a", source)
        assert [request.content for request in server.requests] == [b"twice", b"twice"]


def test_retry_after_is_honoured() -> None:
    server = script(failure("rate_limited", 429, **{"Retry-After": "3"}), answer(BOX))
    server.client().get_status("alice_1f2e3d4c")
    (pause,) = server.pauses
    assert 3 <= pause <= 3 + MAX_PAUSE_S


def test_retry_after_may_be_a_date() -> None:
    server = script(failure("unavailable", 503, **{"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}), answer(BOX))
    server.client().get_status("alice_1f2e3d4c")
    assert len(server.requests) == 2


def test_a_wait_that_does_not_fit_the_timeout_is_not_begun() -> None:
    server = script(failure("rate_limited", 429, **{"Retry-After": "500"}))
    with pytest.raises(TooManyRequests) as caught:
        server.client(timeout=60).get_status("alice_1f2e3d4c")
    assert caught.value.retry_after == 500
    assert server.pauses == []


def test_a_quota_is_not_a_matter_of_patience() -> None:
    server = script(failure("quota_exceeded", 429))
    with pytest.raises(QuotaExceeded):
        server.client().create_sandbox("alice")
    assert len(server.requests) == 1


def test_a_definite_no_of_the_provider_is_final() -> None:
    server = script(failure("provider_refused", 503))
    with pytest.raises(ProviderRefused):
        server.client().create_sandbox("alice")
    assert len(server.requests) == 1


def test_retries_are_counted() -> None:
    server = script(refuse)
    with pytest.raises(ServerUnreachable, match="paddock up"):
        server.client(retries=2).health()
    assert len(server.requests) == 3
    assert script(refuse).client(retries=0).server_url == "http://paddock.test"


def test_the_timeout_bounds_all_tries_together() -> None:
    now = 0.0
    tries = Tries(Repeat.SAFE, retries=1000, patience=20.0, now=lambda: now)
    while (pause := tries.pause_after(Unavailable("no"))) is not None:
        now += pause
        assert now < 20
        assert tries.time_left == pytest.approx(max(0.1, 20 - now))
        now += min(0.5, tries.time_left)
    assert now > 10


def test_pauses_grow_are_jittered_and_stay_bounded() -> None:
    assert max(backoff(0) for _ in range(100)) <= 0.1
    assert max(backoff(3) for _ in range(200)) > 0.4
    assert max(backoff(50) for _ in range(200)) <= MAX_PAUSE_S
    assert len({backoff(5) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [(None, 150.0), (1800.0, 1830.0), (1.0, 120.0)],
    ids=["the server's default", "a long one", "a short one"],
)
def test_the_read_timeout_follows_the_commands_own(timeout: float | None, expected: float) -> None:
    server = script(answer(RESULT))
    server.client().run_command("alice_1f2e3d4c", "make", timeout=timeout)
    assert server.requests[0].extensions["timeout"]["read"] == pytest.approx(expected, abs=0.5)


def test_waiting_for_a_process_may_take_as_long_as_was_asked() -> None:
    server = script(answer(ENDED))
    server.client(timeout=5).wait_process("alice_1f2e3d4c", "p_0123456789abcdef", timeout=600)
    assert server.requests[0].extensions["timeout"]["read"] == pytest.approx(630, abs=0.5)
