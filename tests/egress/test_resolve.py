"""The host's resolver, shared: one sandbox with slow names holds up no other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from paddock import errors
from paddock.egress.resolve import HostResolver, look_up
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def resolver() -> Iterator[HostResolver]:
    resolver = HostResolver(patience=0.3)
    yield resolver
    resolver.close()


async def test_a_name_of_the_host_is_found(resolver: HostResolver) -> None:
    assert "127.0.0.1" in await resolver.share()("localhost")


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (socket.EAI_NONAME, errors.NotFound),
        (socket.EAI_AGAIN, errors.Unavailable),
        (socket.EAI_FAIL, errors.Unavailable),
    ],
)
def test_not_there_and_not_known_are_different(
    monkeypatch: pytest.MonkeyPatch, number: int, raised: type[errors.PaddockError]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "words")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(raised):
        look_up("some.test")


async def test_slow_names_of_one_sandbox_leave_threads_for_another(
    resolver: HostResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    begun: list[str] = []

    def slow(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name == "slow.test":
            begun.append(name)
            stuck.wait(PATIENCE_S)
        return [(0, 0, 0, "", ("93.184.216.34", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    mine, other = resolver.share(), resolver.share()
    try:
        slow_ones = [asyncio.create_task(_outcome(mine("slow.test"))) for _ in range(40)]
        await until(lambda: len(begun) >= 4)
        assert await other("quick.test") == ["93.184.216.34"]
        assert set(await asyncio.gather(*slow_ones)) == {"Unavailable"}
        assert len(begun) == 4
    finally:
        stuck.set()


async def test_slow_names_of_all_sandboxes_of_one_user_leave_threads_for_another(
    resolver: HostResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    begun: list[str] = []

    def slow(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name == "slow.test":
            begun.append(name)
            stuck.wait(PATIENCE_S)
        return [(0, 0, 0, "", ("93.184.216.34", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    owner = ["", "alice"]
    many = [resolver.share(lambda: owner[0]) for _ in range(20)]
    owner[0] = "mallory"
    other = resolver.share(lambda: owner[1])
    try:
        slow_ones = [asyncio.create_task(_outcome(each("slow.test"))) for each in many for _ in range(4)]
        await until(lambda: len(begun) >= 8)
        assert await other("quick.test") == ["93.184.216.34"]
        assert set(await asyncio.gather(*slow_ones)) == {"Unavailable"}
        assert len(begun) == 8
    finally:
        stuck.set()
    owner[1] = "mallory"
    assert await other("quick.test") == ["93.184.216.34"], "turns come back with the threads"


async def _outcome(lookup: object) -> str:
    try:
        await lookup  # type: ignore[misc]
    except errors.PaddockError as trouble:
        return type(trouble).__name__
    return "found"
