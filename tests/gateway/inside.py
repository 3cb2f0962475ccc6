"""The server inside the sandbox: plain sockets, one thread per connection, so that it can be as odd as a test needs.

Runs on nothing but the standard library (``python3 inside.py <port>``).

=============  =====================================================================================================
``/seen``      the request as it arrived: line, headers, and a digest of the body, as JSON
``/chunks``    three chunks
``/events``    server-sent events: one at once, then one for each time that ``/next`` is asked for
``/next``      lets an event go
``/long``      as many bytes as the query says, with a length; ``/long-chunks`` in chunks of 64 KiB
``/until-end`` a body that ends with the connection
``/empty``     204; ``/unchanged`` 304; ``/old`` an HTTP/1.0 answer; ``/once`` an answer and ``Connection: close``
``/early``     an answer before the body was read
``/two``       two answers to one request
``/nonsense``  no HTTP; ``/nothing`` no answer at all; ``/half`` half an answer
``/wait``      waits for the client to leave, and says so in ``/left``
``/ws``        a WebSocket that says everything back; any other ``Upgrade`` says every byte back
``/end``       reads to the end of the stream before it answers
=============  =====================================================================================================
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import sys
import threading
from typing import Any, BinaryIO

GO = threading.Semaphore(0)
LEFT: list[str] = []
SERVED = {"connections": 0}


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
    while True:
        connection, _ = listener.accept()
        SERVED["connections"] += 1
        threading.Thread(target=serve, args=(connection, SERVED["connections"]), daemon=True).start()


def serve(connection: socket.socket, number: int) -> None:
    with connection, connection.makefile("rb") as reader:
        try:
            while answer(connection, reader, number):
                pass
        except OSError:
            return


def answer(connection: socket.socket, reader: BinaryIO, number: int) -> bool:
    line = reader.readline().decode()
    if not line.strip():
        return False
    method, target, _ = line.split(" ", 2)
    headers = []
    while header := reader.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = header.partition(":")
        headers.append((name, value.strip()))
    known = {name.lower(): value for name, value in headers}
    path, _, query = target.partition("?")
    if "upgrade" in known and path not in ("/seen", "/no-upgrade"):
        switch(connection, reader, known)
        return False
    special = SPECIAL.get(path)
    if special is not None:
        return special(connection, reader, query)
    if known.get("expect") == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = read_body(reader, known)
    seen = {"method": method, "target": target, "headers": headers, "connection": number, **body}
    send(connection, json.dumps(seen).encode(), "application/json", head_only=method == "HEAD")
    return True


def read_body(reader: BinaryIO, known: dict[str, str]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    if known.get("transfer-encoding") == "chunked":
        while count := int(reader.readline().split(b";")[0], 16):
            digest.update(reader.read(count))
            size += count
            reader.readline()
        reader.readline()
    else:
        left = int(known.get("content-length", 0))
        while left:
            piece = reader.read(min(left, 1 << 20))
            if not piece:
                break
            digest.update(piece)
            size += len(piece)
            left -= len(piece)
    return {"size": size, "sha256": digest.hexdigest()}


def send(connection: socket.socket, body: bytes, kind: str = "text/plain", *, head_only: bool = False) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connection.sendall(head + (b"" if head_only else body))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


def chunks(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    connection.sendall(CHUNKED + b"\r\n" + chunk(b"one,"))
    connection.sendall(chunk(b"two,") + chunk(b"three") + b"0\r\nX-Trailer: 1\r\n\r\n")
    return True


def events(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    connection.sendall(CHUNKED + b"Content-Type: text/event-stream\r\n\r\n" + chunk(b"data: 0\n\n"))
    for number in range(1, int(query or 3)):
        GO.acquire()
        connection.sendall(chunk(b"data: %d\n\n" % number))
    connection.sendall(b"0\r\n\r\n")
    return True


def go(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    GO.release()
    send(connection, b"")
    return True


def long(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    left, block = int(query), bytes(1 << 20)
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
    while left:
        connection.sendall(memoryview(block)[: min(left, len(block))])
        left -= min(left, len(block))
    return True


def long_chunks(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    left, block = int(query), chunk(bytes(65_536))
    connection.sendall(CHUNKED + b"\r\n")
    while left > 0:
        connection.sendall(block)
        left -= 65_536
    connection.sendall(b"0\r\n\r\n")
    return True


def until_end(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    return False


def raw(data: bytes, lives: bool) -> Any:
    def reply(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
        connection.sendall(data)
        return lives

    return reply


def wait(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    LEFT.append("waiting")
    reader.read(1)
    LEFT.append("left")
    return False


def left(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    send(connection, json.dumps(LEFT).encode())
    return True


def end(connection: socket.socket, reader: BinaryIO, query: str) -> bool:
    reader.read()
    send(connection, b"read to the end")
    return False


def switch(connection: socket.socket, reader: BinaryIO, known: dict[str, str]) -> None:
    if known["upgrade"].lower() != "websocket":
        connection.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {known['upgrade']}\r\n\r\n".encode()
        )
        while data := reader.read1(65_536):  # type: ignore[attr-defined]
            connection.sendall(data)
        return
    accept = hashlib.sha1(known["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n"
    )
    while echo_frame(connection, reader):
        pass


def echo_frame(connection: socket.socket, reader: BinaryIO) -> bool:
    start = reader.read(2)
    if len(start) < 2:
        return False
    length = start[1] & 0x7F
    extended = b""
    if length >= 126:
        extended = reader.read(2 if length == 126 else 8)
        length = struct.unpack(">H" if length == 126 else ">Q", extended)[0]
    mask = reader.read(4)
    payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(reader.read(length)))
    connection.sendall(bytes([start[0], start[1] & 0x7F]) + extended + payload)
    return start[0] & 0x0F != 8


SPECIAL = {
    "/chunks": chunks,
    "/events": events,
    "/next": go,
    "/long": long,
    "/long-chunks": long_chunks,
    "/until-end": until_end,
    "/empty": raw(b"HTTP/1.1 204 No Content\r\n\r\n", True),
    "/unchanged": raw(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", True),
    "/old": raw(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold", False),
    "/once": raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nonce", False),
    "/early": raw(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\nno thank", False),
    "/two": raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbogus", True
    ),
    "/nonsense": raw(b"hello there\r\n\r\n", False),
    "/nothing": raw(b"", False),
    "/half": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this", False),
    "/half-chunk": raw(CHUNKED + b"\r\n" + b"5\r\nhello\r\n", False),
    "/wait": wait,
    "/left": left,
    "/end": end,
}


if __name__ == "__main__":
    main()
