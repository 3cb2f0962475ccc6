"""Something that ends TLS in front of a server, as a proxy would."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path


class TlsFront:
    """At ``https://localhost:<port>``, for whoever trusts ``authority``."""

    def __init__(self, folder: Path) -> None:
        self.target = 0
        """The port behind it."""
        self.port = 0
        self._own, self._strange = (_certificate(folder, name) for name in ("own", "strange"))
        self.authority = self._own[0]
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(*self._own)
        self._listens = threading.Event()
        self._end: Callable[[], object]

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def show(self, *, own: bool) -> None:
        """From now on a certificate that is trusted, or one that is not."""
        self._context.load_cert_chain(*(self._own if own else self._strange))

    @contextmanager
    def running(self) -> Iterator[TlsFront]:
        thread = threading.Thread(target=asyncio.run, args=(self._listen(),))
        thread.start()
        self._listens.wait()
        try:
            yield self
        finally:
            self._end()
            thread.join()

    async def _listen(self) -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = partial(loop.call_soon_threadsafe, over.set)
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = listening.sockets[0].getsockname()[1]
        self._listens.set()
        await over.wait()
        listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_pour(reader, back), _pour(there, writer))


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
