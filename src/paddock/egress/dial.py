"""Connects to the first of several addresses that accepts. The addresses were checked; no name is resolved here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address

from paddock import errors
from paddock.http1.hosts import Address

Dialled = tuple[Address, socket.socket]

_STAGGER_S = 0.25
"""How long an address is tried alone before the next one is tried in parallel (RFC 8305)."""
_MAX_ADDRESSES = 8


async def dial(addresses: Sequence[Address], port: int, seconds: float) -> Dialled:
    """Raises TimeoutError if none answers in time, :class:`~paddock.errors.Unavailable` if all fail."""
    attempts: set[asyncio.Task[Dialled]] = set()
    troubles: list[OSError] = []
    waiting = list(addresses[:_MAX_ADDRESSES])
    winner: Dialled | None = None
    try:
        async with asyncio.timeout(seconds):
            while winner is None and (waiting or attempts):
                if waiting:
                    attempts.add(asyncio.create_task(_connect(waiting.pop(0), port)))
                done, attempts = await asyncio.wait(
                    attempts, timeout=_STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    trouble = attempt.exception()
                    if trouble is None and winner is None:
                        winner = attempt.result()
                    elif trouble is None:
                        attempt.result()[1].close()
                    elif isinstance(trouble, OSError):
                        troubles.append(trouble)
                    else:
                        raise trouble
    finally:
        await _abandon(attempts)
    if winner is None:
        raise errors.Unavailable(_describe(troubles[0]) if troubles else "it has no address")
    return winner


async def _connect(address: Address, port: int) -> Dialled:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return address, sock


async def _abandon(attempts: set[asyncio.Task[Dialled]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            outcome[1].close()


def _describe(trouble: OSError) -> str:
    """The event loops put the call into ``strerror``, which is useless to users."""
    return os.strerror(trouble.errno) if trouble.errno else str(trouble)
