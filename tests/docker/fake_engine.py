"""An engine of cardboard: an HTTP server on a unix socket that says what a test wants it to say, or nothing at all."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

Said = tuple[int, Any]
"""A status, and a body: what is no text goes as JSON."""
HANG_UP: Said = (0, None)
SILENCE: Said = (-1, None)


class FakeEngine:
    """Knows answers by ``"METHOD /path"`` without the version; whatever else is asked for is not there."""

    def __init__(self, folder: Path, answers: Mapping[str, Said]) -> None:
        self.path = folder / "engine.sock"
        self.host = f"unix://{self.path}"
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.over = threading.Event()

    def answer(self, request: str) -> Said | None:
        """What there is no fixed answer for. None: there is no such thing."""
        return None

    def __enter__(self) -> FakeEngine:
        self._server = _Server(str(self.path), _Handler)
        self._server.engine = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.path.unlink()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    engine: FakeEngine


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        engine = self.server.engine
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path).path.split("/")
        plain = "/".join(["", *parts[2:]] if parts[1].startswith("v1.") else parts)
        engine.asked.append(f"{self.command} {self.path}")
        engine.bodies.append(json.loads(body) if body else None)
        request = f"{self.command} {plain}"
        status, said = engine.answers.get(request) or engine.answer(request) or (404, {"message": "no such thing"})
        if status == SILENCE[0]:
            engine.over.wait(60)
        if status <= 0:
            self.close_connection = True
            return
        content = said.encode() if isinstance(said, str) else b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """A test looks at ``asked``."""
