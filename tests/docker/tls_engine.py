"""TLS in front of an engine, as one on another machine has it: it asks for a certificate, and shows its own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from paddock.providers.docker.address import Address


class TlsEngine:
    def __init__(self, address: Address, of_a_stranger: Path) -> None:
        self.address = address
        self.of_a_stranger = of_a_stranger
        """Certificates that trust the engine, but that it does not know."""

    @classmethod
    @asynccontextmanager
    async def before(cls, target: Address, folder: Path) -> AsyncIterator[Self]:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make certificates with")
        assert target.socket is not None
        server, ours, stranger = (folder / name for name in ("server", "ours", "stranger"))
        for place in (server, ours, stranger):
            place.mkdir()
        await asyncio.to_thread(_certificates, server, ours, stranger)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=server / "ca.pem")
        context.load_cert_chain(server / "cert.pem", server / "key.pem")
        context.verify_mode = ssl.CERT_REQUIRED

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_unix_connection(target.socket)
            await asyncio.gather(_pour(reader, back), _pour(there, writer))

        listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        try:
            yield cls(Address.parse(f"tcp://127.0.0.1:{port}", tls_verify="1", cert_path=str(ours)), stranger)
        finally:
            listening.close()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


def _certificates(server: Path, ours: Path, stranger: Path) -> None:
    for place in (server, stranger):
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={place.name} CA", "-days", "2",
                 "-keyout", str(place / "ca.key"), "-out", str(place / "ca.pem"))  # fmt: skip
    for place, authority in ((server, server), (ours, server), (stranger, stranger)):
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={place.name}", "-keyout",
                 str(place / "key.pem"), "-out", str(place / "request"))  # fmt: skip
        (place / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        _openssl("x509", "-req", "-in", str(place / "request"), "-CA", str(authority / "ca.pem"), "-CAkey",
                 str(authority / "ca.key"), "-CAcreateserial", "-days", "2", "-extfile", str(place / "names"), "-out",
                 str(place / "cert.pem"))  # fmt: skip
    for place in (ours, stranger):
        shutil.copyfile(server / "ca.pem", place / "ca.pem")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], capture_output=True, check=True, timeout=120)
