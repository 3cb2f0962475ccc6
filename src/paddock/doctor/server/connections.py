"""Attacks with connections: so many idle ones that the server runs out of descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import select
import socket
import time
from collections.abc import AsyncIterator, Iterator

import httpx

from paddock.doctor.server.target import RESPONSIVE_S, Target

_LASTS_S = 8.0
"""Duration of the attack, with reconnects. The kernel passes an idle connection on after a second (TCP_DEFER_ACCEPT).
"""
_ADDRESSES = 8
_BATCH = 64
_PAUSE_S = 0.05
_OWN_DESCRIPTORS = 128
_CREATE_TIMEOUT_S = 60.0


async def silent(target: Target) -> str | None:
    """More idle connections than the server has descriptors, from several addresses; a user with a key must still be
    able to create sandboxes."""
    many = target.descriptors * 3 // 2
    with _descriptors(many + _OWN_DESCRIPTORS):
        async with _crowd(target, many):
            until = time.monotonic() + _LASTS_S
            while time.monotonic() < until:
                try:
                    problem = await _works(target)
                except httpx.TransportError as trouble:
                    problem = f"is not answered ({type(trouble).__name__})"
                if problem:
                    return f"beside {many} idle connections, a user with a key {problem}"
    log = await asyncio.to_thread((target.home / "log").read_text, errors="replace")
    return "the server ran out of descriptors" if "Too many open files" in log else None


async def _works(target: Target) -> str | None:
    """With a new connection."""
    async with target.client(target.key) as newcomer:
        listed = await newcomer.get("/sandboxes", timeout=RESPONSIVE_S)
        if listed.status_code != httpx.codes.OK:
            return f"is answered {listed.status_code}"
        made = await newcomer.post("/sandboxes/create", json={"user_id": "doctor"}, timeout=_CREATE_TIMEOUT_S)
        if made.status_code != httpx.codes.OK:
            return f"cannot make a sandbox ({made.status_code})"
        deleted = await newcomer.delete(f"/sandboxes/{made.json()['sandbox_id']}", timeout=_CREATE_TIMEOUT_S)
    return None if deleted.status_code == httpx.codes.OK else f"cannot delete a sandbox ({deleted.status_code})"


class _IdleConnections:
    """Many idle connections. A closed one is opened again."""

    def __init__(self, target: Target, many: int) -> None:
        self._address = target.address
        self._many = many
        self._ended = select.epoll()
        self._silent: dict[int, socket.socket] = {}
        self._dialled = 0

    async def stay(self) -> None:
        try:
            while True:
                for descriptor, _ in self._ended.poll(0):
                    self._silent.pop(descriptor).close()
                for _ in range(min(_BATCH, self._many - len(self._silent))):
                    self._dial()
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._ended.close()
            for sock in self._silent.values():
                sock.close()

    def _dial(self) -> None:
        sock = socket.socket()
        self._silent[sock.fileno()] = sock
        sock.setblocking(False)
        sock.bind((f"127.0.0.{1 + self._dialled % _ADDRESSES}", 0))
        sock.connect_ex(self._address)
        self._ended.register(sock, select.EPOLLIN)
        self._dialled += 1


@contextlib.asynccontextmanager
async def _crowd(target: Target, many: int) -> AsyncIterator[None]:
    staying = asyncio.create_task(_IdleConnections(target, many).stay())
    try:
        yield
    finally:
        staying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await staying


@contextlib.contextmanager
def _descriptors(wanted: int) -> Iterator[None]:
    """Raise this process's limit of open files as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
