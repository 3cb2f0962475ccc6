"""The server that is requested directly and through the gateway: plain sockets, one thread per connection (``python3
port_server.py <port>``).

``/hello`` returns two bytes, ``/down?<bytes>`` that many, ``/up`` reads the body, and any ``Upgrade`` echoes all bytes.
Standard library only, because it runs in a sandbox as well as on the host.
"""

from __future__ import annotations

import socket
import sys
import threading

_BLOCK = memoryview(bytes(1 << 20))


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=256)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = memoryview(bytearray(1 << 20))
    with connection:
        ahead = b""
        while True:
            while b"\r\n\r\n" not in ahead:
                more = connection.recv(65_536)
                if not more:
                    return
                ahead += more
            head, _, ahead = ahead.partition(b"\r\n\r\n")
            ahead = answer(connection, head.lower(), ahead, room)


def answer(connection: socket.socket, head: bytes, ahead: bytes, room: memoryview) -> bytes:
    target = head.split(b" ", 2)[1]
    if b"\r\nupgrade:" in head:
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        while count := connection.recv_into(room):
            connection.sendall(room[:count])
    elif target.startswith(b"/down?"):
        left = int(target[6:])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            left -= connection.send(_BLOCK[: min(left, len(_BLOCK))])
    elif target == b"/up":
        left = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) - len(ahead)
        while left:
            left -= connection.recv_into(room, min(left, len(room)))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return b""
    else:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    return ahead


if __name__ == "__main__":
    main()
