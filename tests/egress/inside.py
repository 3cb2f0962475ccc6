"""Runs inside a network namespace of its own, in the place of a sandbox: ``python inside.py <descriptor>``.

Brings ``lo`` up, makes the sockets that it is told to make and hands them over, then runs commands, one JSON line each.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
from typing import Any


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    lines = link.makefile("r")
    lo_up()
    for line in lines:
        asked = json.loads(line)
        if asked["do"] == "listen":
            sockets = [make_socket(*one) for one in asked["sockets"]]
            socket.send_fds(link, [b"s"], [one.fileno() for one in sockets])
            for one in sockets:
                one.close()
        else:
            link.sendall(json.dumps(run(asked)).encode() + b"\n")


def lo_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def make_socket(kind: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    if kind == "tcp":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    if kind == "tcp":
        sock.listen(64)
    return sock


def run(asked: dict[str, Any]) -> list[Any]:
    done = subprocess.run(
        asked["argv"], input=asked["stdin"], env=asked["env"], capture_output=True, text=True, timeout=120, check=False
    )
    return [done.returncode, done.stdout, done.stderr]


if __name__ == "__main__":
    main()
