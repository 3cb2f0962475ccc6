"""The canary: a host process with a secret that no sandbox may find. Run as ``python -m paddock.doctor.canary``.

The secret is in its arguments and environment, and is sent to every client that connects. It ends when its input is
closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import selectors
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine(), (-1, -1))
_USER_KEYRING, _UNLINK = -4, 9
_CREATE, _REMOVE = 0o1000, 0
_libc = ctypes.CDLL(None, use_errno=True)


def main(secret: str, folder: Path) -> None:
    with contextlib.ExitStack() as held:
        doors = {name: held.enter_context(door) for name, door in _doors(secret, folder)}
        facts: dict[str, str | None] = {"pid": str(os.getpid())}
        for name in ("port", "port_6", "address_port"):
            facts[name] = str(doors[name].getsockname()[1]) if name in doors else None
        facts["address"] = doors["address_port"].getsockname()[0] if "address_port" in doors else None
        facts["shared_memory"] = held.enter_context(_shared_memory())
        facts["key"] = key = f"paddock-canary-{secret}"
        facts["key_number"] = held.enter_context(_key(key, secret))
        sys.stdout.write(f"{json.dumps(facts)}\n")
        sys.stdout.flush()
        _answer(list(doors.values()), secret.encode())


def _doors(secret: str, folder: Path) -> Iterator[tuple[str, socket.socket]]:
    yield "port", _listening(socket.AF_INET, ("127.0.0.1", 0))
    with contextlib.suppress(OSError):
        yield "port_6", _listening(socket.AF_INET6, ("::1", 0))
    if (address := _own_address()) is not None:
        yield "address_port", _listening(socket.AF_INET, (address, 0))
    yield "abstract", _listening(socket.AF_UNIX, f"\0{secret}-socket")
    path = folder / "socket"
    yield "socket", _listening(socket.AF_UNIX, str(path))
    path.chmod(0o666)


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.bind(address)
        made.listen()
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _own_address() -> str | None:
    """A non-loopback address, if this machine has one. Connecting a datagram socket sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        try:
            question.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(question.getsockname()[0])
        return None if address.startswith("127.") else address


@contextlib.contextmanager
def _shared_memory() -> Iterator[str | None]:
    """Key of a world-readable System V segment, if this machine supports them."""
    key = int.from_bytes(os.urandom(3), "big") + 1
    segment = _libc.shmget(key, 4096, _CREATE | 0o666)
    try:
        yield str(key) if segment >= 0 else None
    finally:
        if segment >= 0:
            _libc.shmctl(segment, _REMOVE, None)


@contextlib.contextmanager
def _key(description: str, secret: str) -> Iterator[str | None]:
    """Number of a key in this user's kernel keyring, if this machine allows one."""
    number = -1
    if _ADD_KEY >= 0:
        number = _libc.syscall(_ADD_KEY, b"user", description.encode(), secret.encode(), len(secret), _USER_KEYRING)
    try:
        yield str(number) if number >= 0 else None
    finally:
        if number >= 0:
            _libc.syscall(_KEYCTL, _UNLINK, number, _USER_KEYRING, 0, 0)


def _answer(doors: list[socket.socket], secret: bytes) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for door in doors:
            selector.register(door, selectors.EVENT_READ)
        while True:
            for ready, _ in selector.select():
                if not isinstance(ready.fileobj, socket.socket):
                    return
                with contextlib.suppress(OSError):  # a client that has disconnected
                    guest, _ = ready.fileobj.accept()
                    with guest:
                        guest.sendall(secret)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
