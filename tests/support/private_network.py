"""A private network of the operator's: a host in a network namespace of its own, with a web server on it.

It is reached from this host by a virtual cable, like a database server behind the next switch. Needs root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        size = int(self.path[7:]) if self.path.startswith("/bytes/") else 0
        self.send_response(200); self.end_headers(); self.wfile.write(bytes(size) or b"internal")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(b"read")
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler)
print("ready", flush=True)
server.serve_forever()
"""
PORT = 8123


def possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("unshare") is not None


@dataclass(frozen=True)
class PrivateNetwork:
    network: str
    address: str
    port: int = PORT

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}/"


@contextmanager
def private_network() -> Iterator[PrivateNetwork]:
    """Under 10.0.0.0/8, chosen at random so that tests beside this one have their own."""
    second, third, name = secrets.randbelow(200) + 20, secrets.randbelow(256), secrets.token_hex(4)
    ours, theirs = f"10.{second}.{third}.1", f"10.{second}.{third}.2"
    holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    inside = ("nsenter", "-t", str(holder.pid), "-n")
    try:
        _until_separate(holder.pid)
        _run("ip", "link", "add", f"pd{name}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "addr", "add", f"{ours}/30", "dev", f"pd{name}")
        _run("ip", "link", "set", f"pd{name}", "up")
        _run(*inside, "ip", "addr", "add", f"{theirs}/30", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        server = subprocess.Popen(
            [*inside, sys.executable, "-I", "-c", _SERVER, theirs, str(PORT)], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            yield PrivateNetwork(f"10.{second}.{third}.0/30", theirs)
        finally:
            server.kill()
            server.wait()
    finally:
        holder.kill()  # the namespace ends with it, and the cable with the namespace
        holder.wait()


def _until_separate(pid: int) -> None:
    """Until ``unshare`` has done what its name says."""
    while Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        pass


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
