"""The client's end of a connection: a second descriptor of the socket that the web server accepted."""

from __future__ import annotations

import asyncio
import select
import socket

from paddock.http1.stream_socket import StreamSocket

_LOOK_SECONDS = 15.0
# Who vanished without a word is found out after about two minutes.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


def client_wire(connected: int) -> StreamSocket:
    """Over a duplicate of this descriptor, which stays the web server's."""
    sock = socket.socket(fileno=socket.dup(connected))
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_silent_end(sock)
    return StreamSocket(sock)


def notice_silent_end(sock: socket.socket) -> None:
    """Have the kernel ask now and then whether the other machine is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def hung_up(client: StreamSocket) -> bool:
    """Wait until the client says something. Whether that was its last word; what else it says stays unread."""
    if client.ahead:
        return False
    await client.readable()
    try:
        return not client.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


async def gone(client: StreamSocket) -> None:
    """Wait until a client that has said its last word cannot listen either.

    The end of its stream is always readable, so there is nothing to wait on; the kernel learns of it by its keep-alive
    probes, and is asked now and then.
    """
    poll = select.poll()
    poll.register(client.sock, 0)  # errors and hang-ups are always told
    while not poll.poll(0):  # noqa: ASYNC110 (only the kernel knows)
        await asyncio.sleep(_LOOK_SECONDS)
