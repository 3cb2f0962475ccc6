"""A package index of the test's own, for pip, uv and npm, over TLS with a certificate of a private authority.

It holds one package for each language, whose program prints what it is. Sandboxes reach it through the egress proxy.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

NAME = "paddock_test_parcel"
PACKAGE = NAME.replace("_", "-")
_ADDRESS = "127.0.0.9"
_NPM_VERSION = "1.0.0"
_NPM_PACKAGE = {"name": PACKAGE, "version": _NPM_VERSION, "bin": {"npm-parcel": "run.js"}}
# npm takes an address behind a proxy for localhost.
_OPENSSL = f"""
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:{_ADDRESS}, DNS:localhost
authorityKeyIdentifier = keyid
"""

INSTALLS = {
    "pip": f"pip install -q {PACKAGE} && parcel",
    "sudo pip": f"sudo pip install -q {PACKAGE} && parcel && sudo parcel",
    "npm": f"npm install -g --silent {PACKAGE} && npm-parcel",
    "npx": f"npx --yes {PACKAGE}",
    "uvx": f"pip install -q uv && uvx -q --from {PACKAGE} parcel",
}
"""What users type, by the program that they need inside. Each prints ``ran 4711`` by a program that it installed."""


def wheel() -> bytes:
    """The smallest that pip takes: one module with one number in it, and a script."""
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}.py": "NUMBER = 4711\n\ndef main():\n    print('ran', NUMBER)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\nparcel = {NAME}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


class PackageIndex:
    """``authority`` is the file that an operator names in ``PADDOCK_EXTRA_CA``; a private key is in it as well."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "authority.pem"
        self._files = {
            "repo.git/info/refs": f"{'1' * 40}\trefs/heads/main\n".encode(),
            "repo.git/HEAD": b"ref: refs/heads/main\n",
        }
        self._folder = folder
        self._wheels = {f"{NAME}-1.0-py3-none-any.whl": wheel()}
        self._tarball = _npm_tarball()
        self._listening = _Listener((_ADDRESS, 0), self._answer)
        self._listening.socket = self._context().wrap_socket(
            self._listening.socket,
            server_side=True,
            do_handshake_on_connect=False,  # but in the thread of the connection, so that none waits for another
        )
        self.url = f"https://{_ADDRESS}:{self._listening.server_address[1]}"

    @cached_property
    def variables(self) -> dict[str, str]:
        """With these, package managers go nowhere else."""
        python, npm = f"{self.url}/simple", f"{self.url}/npm/"
        return {"PIP_INDEX_URL": python, "UV_DEFAULT_INDEX": python, "NPM_CONFIG_REGISTRY": npm}

    @property
    def settings(self) -> dict[str, str]:
        """Of a server whose sandboxes are to reach and to trust it."""
        return {"PADDOCK_EXTRA_CA": str(self.authority), "PADDOCK_EGRESS_REACHABLE": f"{_ADDRESS}/32"}

    def add_uv(self) -> None:
        """As it is on the index that this machine's pip is configured for. Skips where it cannot be had."""
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(self._folder), "uv"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        found = list(self._folder.glob("uv-*.whl"))
        if done.returncode or not found:
            pytest.skip(f"no package index answers here: {done.stderr[-300:]}")
        self._wheels |= {path.name: path.read_bytes() for path in found}

    @contextmanager
    def running(self) -> Iterator[PackageIndex]:
        threading.Thread(target=self._listening.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._listening.shutdown()
            self._listening.server_close()

    def _answer(self, path: str) -> bytes | None:
        kind, _, rest = path.partition("?")[0].strip("/").partition("/")
        if kind == "simple":
            names = [name for name in self._wheels if name.partition("-")[0].replace("_", "-") == rest]
            links = "".join(f'<a href="/files/{name}">{name}</a>' for name in names)
            return f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if names else None
        if kind == "files":
            return self._wheels.get(rest)
        if kind == "npm":
            return {PACKAGE: self._npm_document(), "parcel.tgz": self._tarball}.get(rest)
        return self._files.get(f"{kind}/{rest}")

    def _npm_document(self) -> bytes:
        digest = base64.b64encode(hashlib.sha512(self._tarball).digest()).decode()
        dist = {"tarball": f"{self.url}/npm/parcel.tgz", "integrity": f"sha512-{digest}"}
        version = {**_NPM_PACKAGE, "dist": dist}
        document = {"name": PACKAGE, "dist-tags": {"latest": _NPM_VERSION}, "versions": {_NPM_VERSION: version}}
        return json.dumps(document).encode()

    def _context(self) -> ssl.SSLContext:
        settings, authority, server = (self._folder / name for name in ("openssl.cnf", "authority.key", "server.pem"))
        settings.write_text(_OPENSSL)
        made = ["openssl", "req", "-x509", "-config", settings, "-days", "2", "-nodes", "-newkey", "ec"]
        made += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
        own = ["-subj", "/CN=private", "-extensions", "authority", "-keyout", authority, "-out", self.authority]
        subprocess.run([*made, *own], check=True, capture_output=True)
        signed = ["-CA", self.authority, "-CAkey", authority, "-subj", "/CN=index", "-extensions", "server"]
        subprocess.run([*made, *signed, "-keyout", server, "-out", f"{server}.cert"], check=True, capture_output=True)
        with self.authority.open("a") as both:
            both.write(authority.read_text())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{server}.cert", server)
        return context


def _npm_tarball() -> bytes:
    files = {
        "package.json": json.dumps(_NPM_PACKAGE),
        "run.js": "#!/usr/bin/env node\nconsole.log('ran', 4711)\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


class _Listener(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], answer: Callable[[str], bytes | None]) -> None:
        self.answer = answer
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, *words: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        found = self.server.answer(self.path)
        self.send_response(404 if found is None else 200)
        html = self.path.startswith("/simple/")
        self.send_header("Content-Type", "text/html" if html else "application/octet-stream")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(found or b"")

    do_HEAD = do_GET
