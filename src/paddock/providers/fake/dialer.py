"""Runs inside a sandbox's network, outside its file system: connects, and hands the connected socket over.

A script of its own (``python -I -S dialer.py <descriptor> <port>``), because a server with threads cannot enter a user
namespace.
Exit status 0: handed over; 7: nothing listens there.
"""

from __future__ import annotations

import socket
import sys

CONNECT_SECONDS = 5.0


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=CONNECT_SECONDS)
    except OSError:
        raise SystemExit(7) from None
    connection.setblocking(False)
    socket.send_fds(link, [b"1"], [connection.fileno()])


if __name__ == "__main__":
    main()
