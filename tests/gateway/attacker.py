"""A hostile server inside a sandbox: it answers whatever its address says, and remembers what its pages catch.

Runs on nothing but the standard library (``python3 attacker.py <port>``).

==============  ====================================================================================================
``?answer=``    JSON: ``status``, ``headers`` (pairs) and ``body`` of the answer, on any path; other paths answer 404
``/catch``      notes the query; ``/caught`` answers with all that was noted, as JSON
``/requests``   the requests that came, as JSON: path and headers
``/seen``       the headers of this request, as JSON
==============  ====================================================================================================
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CAUGHT: list[str] = []
REQUESTS: list[dict[str, object]] = []


class Attacker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        given = parse_qs(address.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if address.path in ("/caught", "/requests", "/seen"):
            self._answer(200, [], json.dumps({"/caught": CAUGHT, "/requests": REQUESTS}.get(address.path, headers)))
            return
        REQUESTS.append({"path": address.path, "headers": headers})
        if address.path == "/catch":
            CAUGHT.append(given["what"][0])
            self._answer(200, [["Access-Control-Allow-Origin", "*"]], "")
        elif "answer" in given:
            answer = json.loads(given["answer"][0])
            self._answer(answer.get("status", 200), answer.get("headers", []), answer.get("body", ""))
        else:
            self._answer(404, [], "nothing")

    do_POST = do_GET

    def _answer(self, status: int, headers: list[list[str]], body: str) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-type" for name, _ in headers):
            self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Attacker).serve_forever()
