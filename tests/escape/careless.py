"""A server that does whatever it is asked, and writes all of it down: ``python careless.py LOG DESCRIPTORS``.

It answers everything with all that an attack may ask for, serves what a sandbox would with the headers that the
application chose, holds whole what nobody reads, and has a thread for each connection. It says on stdout where it is.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from paddock.doctor.server.hostile_app import HEADERS

LARGE_BYTES = 30 << 20
ENTRY = {"host": "10.0.0.1", "allowed": True, "reason": "it was asked for"}
EVERYTHING = {
    "sandbox_id": "alice_1",
    "key": "abc",
    "id": "abc",
    "status": "ready",
    "url": "http://3000-abc.localhost/?paddock_link=by_host",
    "path": "/p/abc/3000/?paddock_link=by_path",
    "ticket": "t_1",
    "envdAccessToken": "secret",
    "sandboxes": [],
}


class Careless(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log = Path(sys.argv[1])
    marks: ClassVar[set[str]] = set()
    requests: ClassVar[int] = 0

    def _answer(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.log.open("ab") as log:
            log.write(self.requestline.encode() + bytes(self.headers) + asked)
        Careless.requests += 1
        Careless.marks |= set(re.findall(r"hostile_app\.py (\w+)", asked.decode(errors="replace")))
        count = Careless.requests
        found = {**EVERYTHING, "loop_stalls": count, "latest": [ENTRY] * count, "marks": sorted(Careless.marks)}
        body = json.dumps(found).encode()
        if self.path.endswith("/read-file"):
            body = b"x" * LARGE_BYTES
        self.send_response(200)
        for name, value in HEADERS if self._is_for_a_port() else ():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_for_a_port(self) -> bool:
        by_host = re.match(r"\d+-", self.headers.get("Host", ""))
        return bool(by_host or "E2b-Sandbox-Id" in self.headers or urlsplit(self.path).path.startswith("/p/"))

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, *args: object) -> None:
        """Not on the terminal."""


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


if __name__ == "__main__":
    descriptors = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with Server(("127.0.0.1", 0), Careless) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
