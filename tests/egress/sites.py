"""Servers with the habits, good and bad, that real ones have."""

from __future__ import annotations

import asyncio

from tests.support.waiting import PATIENCE_S


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what it gets, and says so when it has got everything."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"|end")
    writer.close()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A small HTTP/1.1 server."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await _one(reader, writer):
                pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].split(b" ")
    fields = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if path == b"/early":
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull")
        return False
    if path == b"/ws":
        writer.write(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX-Key: 1\r\n\r\nhi!")
        while data := await reader.read(1000):
            writer.write(data.upper())
        return False
    if fields.get(b"expect") == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _body(reader, fields)
    return _respond(writer, method, path, head, body)


async def _body(reader: asyncio.StreamReader, fields: dict[bytes, bytes]) -> bytes:
    if fields.get(b"transfer-encoding") != b"chunked":
        return await reader.readexactly(int(fields.get(b"content-length", b"0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


def _respond(writer: asyncio.StreamWriter, method: bytes, path: bytes, head: bytes, body: bytes) -> bool:
    def whole(content: bytes, more: bytes = b"") -> None:
        shown = b"" if method == b"HEAD" else content
        writer.write(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(content), shown))

    match path:
        case b"/head":
            whole(head)
        case b"/echo":
            whole(body)
        case b"/hop":
            whole(b"ok", b"Connection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=9\r\nX-Yours: 2\r\n")
        case b"/chunked":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n")
        case b"/until-end":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
            return False
        case b"/nothing":
            return False
        case b"/cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
            return False
        case b"/garbage":
            writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
            return False
        case b"/empty":
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        case _:
            whole(b"you asked for " + path)
    return True
