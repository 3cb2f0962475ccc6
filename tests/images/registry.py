"""A registry on loopback that speaks the distribution protocol, and fails as tests want it to."""

from __future__ import annotations

import base64
import re
import secrets
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.images.building import BuiltImage, digest

_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<what>[^/]+)")
_INDEX = b"image.index.v1"


@dataclass
class Registry:
    username: str = ""
    password: str = ""
    bearer: bool = False
    """Whether it wants a token of its own token service instead of the password."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path, each with its range if there is one."""
    authorizations: list[str] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of each blob."""
    cut_after: int | None = None
    """Once, a connection that sends a blob is cut after so many bytes."""
    stall_after: int | None = None
    ignores_ranges: bool = False
    elsewhere: str = ""
    """Blobs are redirected to there."""
    tampered: dict[str, bytes] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    """What the next requests are answered with."""
    url: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return self.url.partition("://")[2]

    def add(self, name: str, tag: str, *images: BuiltImage, index: bytes | None = None) -> str:
        """The reference under which it is found."""
        for one in images:
            self.blobs.update(one.blobs)
            self.manifests[name, one.digest] = one.manifest
        top = index if index is not None else images[0].manifest
        self.manifests[name, tag] = self.manifests[name, digest(top)] = top
        return f"{self.name}/{name}:{tag}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def do_GET(self) -> None:
        registry = self.registry
        registry.requests.append((self.path, self.headers.get("Range", "")))
        registry.authorizations.append(self.headers.get("Authorization", ""))
        if self.path.startswith("/token"):
            return self._token()
        if registry.statuses:
            return self._answer(registry.statuses.pop(0), b"{}")
        if not self._allowed():
            return self._challenge()
        found = _PATH.fullmatch(self.path)
        if found is None:
            return self._answer(200 if self.path == "/v2/" else 404, b"{}")
        if found["kind"] == "manifests":
            return self._manifest(found["name"], found["what"])
        return self._blob(found["what"])

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        if not self.registry.username:
            return True
        return given == (f"Bearer {self.registry.token}" if self.registry.bearer else self._basic())

    def _basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.registry.username}:{self.registry.password}".encode()).decode()

    def _challenge(self) -> None:
        kind = 'Basic realm="test"'
        if self.registry.bearer:
            kind = f'Bearer realm="{self.registry.url}/token",service="test",scope="repository:any:pull"'
        self._answer(401, b"{}", {"WWW-Authenticate": kind})

    def _token(self) -> None:
        if self.headers.get("Authorization") != self._basic():
            return self._answer(401, b"{}")
        return self._answer(200, b'{"token": "%s"}' % self.registry.token.encode())

    def _manifest(self, name: str, what: str) -> None:
        content = self.registry.manifests.get((name, what))
        if content is None:
            return self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        kind = "index" if _INDEX in content else "manifest"
        headers = {
            "Content-Type": f"application/vnd.oci.image.{kind}.v1+json",
            "Docker-Content-Digest": digest(content),
        }
        return self._answer(200, self.registry.tampered.get(what, content), headers)

    def _blob(self, what: str) -> None:
        registry = self.registry
        if registry.elsewhere:
            return self._answer(307, b"", {"Location": f"{registry.elsewhere}{self.path}"})
        content = registry.tampered.get(what, registry.blobs.get(what))
        if content is None:
            return self._answer(404, b"{}")
        begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if begin is None or registry.ignores_ranges:
            return self._send(200, content, what)
        return self._send(206, content[int(begin[1]) :], what)

    def _send(self, status: int, content: bytes, what: str) -> None:
        registry = self.registry
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut, stall = registry.cut_after, registry.stall_after
        limit = next((each for each in (cut, stall) if each is not None and each < len(content)), None)
        self.wfile.write(content if limit is None else content[:limit])
        self.wfile.flush()
        registry.sent[what] += len(content) if limit is None else limit
        if limit is None:
            return
        if limit == stall:
            registry.released.wait()
        registry.cut_after = None
        self.close_connection = True

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients leave in the middle of answers here."""


@contextmanager
def running(registry: Registry, certificate: tuple[Path, Path] | None = None) -> Iterator[Registry]:
    handler: Callable[..., BaseHTTPRequestHandler] = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    registry.url = f"{scheme}://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        registry.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
