"""An application inside a sandbox whose responses try all known attacks on a browser.

``python3 hostile_app.py MARK PORT...`` answers every request on these ports with the mark and the request's headers, as
JSON; at ``/heads`` and ``/chunks`` with (nearly) endless small pieces. Runs inside the sandbox with the standard
library only.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "sandbox allow-scripts allow-same-origin"),
    ("X-Content-Type-Options", "none"),
    ("Service-Worker-Allowed", "/"),
    ("Set-Cookie", "tossed=1; Domain=localhost; Path=/"),
    ("Set-Cookie", "paddock_port=tossed; Path=/"),
    ("Clear-Site-Data", '"*"'),
    ("Strict-Transport-Security", "max-age=9999; includeSubDomains"),
    ("Origin-Agent-Cluster", "?0"),
    ("Refresh", "0; url=/docs"),
    ("Speculation-Rules", '"/rules.json"'),
    ("Report-To", '{"group": "x", "max_age": 9999, "endpoints": []}'),
)


CHUNKS = 100_000


class HostileApp(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/heads":
            while True:  # until nobody reads it any more
                self.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3000)
        if self.path == "/chunks":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.wfile.write(b"1\r\na\r\n" * CHUNKS + b"0\r\n\r\n")
            return
        said = {"mark": sys.argv[1], "headers": {name.lower(): value for name, value in self.headers.items()}}
        body = json.dumps(said).encode()
        self.send_response(200)
        for name, value in HEADERS:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    for port in map(int, sys.argv[2:]):
        server = ThreadingHTTPServer(("127.0.0.1", port), HostileApp)
        threading.Thread(target=server.serve_forever).start()
