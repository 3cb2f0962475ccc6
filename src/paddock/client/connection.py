"""What both clients know about their server: URL, key, timeouts, and how a call becomes a request."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from paddock import __version__
from paddock.client.call import ApiCall
from paddock.client.errors import from_response, from_transport
from paddock.client.retry import Tries
from paddock.errors import Invalid, PaddockError, Unauthorized
from paddock.home import default_home, running_server


def find_server_url(server_url: str | None = None) -> str:
    """The argument, ``PADDOCK_URL``, ``SANDBOX_HOST`` and ``SANDBOX_PORT``, else the server that runs in
    ``PADDOCK_HOME`` on this machine, else this machine's port 8080."""
    url = server_url or os.environ.get("PADDOCK_URL") or _url_in_environment() or _url_in_home()
    url = url or "http://127.0.0.1:8080"
    url = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise Invalid(f"{url!r} is not the URL of a server: write it as http://host:port.")
    return url


def find_api_key(server_url: str, api_key: str | None = None) -> str | None:
    """The argument, ``PADDOCK_API_KEY``, else the key file that ``paddock up`` wrote.

    The key file belongs to the server of this machine, so its key is never sent elsewhere: only to an address of this
    machine, or to the address that the server of that home listens on.
    """
    key = api_key or os.environ.get("PADDOCK_API_KEY") or _key_in_file(server_url) or ""
    key = key.strip()
    if not key.isascii() or any(not "!" <= character <= "~" for character in key):
        # Checked here, because the HTTP library would include the key in its error message.
        raise Unauthorized("The API key holds characters that no key has. Was it copied whole?")
    return key or None


def is_this_machine(server_url: str) -> bool:
    host = urlsplit(server_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost") or host == socket.gethostname().lower():
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _url_in_environment() -> str | None:
    host, port = os.environ.get("SANDBOX_HOST"), os.environ.get("SANDBOX_PORT")
    if not (host or port):
        return None
    host, port = host or "127.0.0.1", port or "8080"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _url_in_home() -> str | None:
    found = running_server(default_home())
    return None if found is None else found.url


def _key_in_file(server_url: str) -> str | None:
    if not is_this_machine(server_url) and server_url != _url_in_home():
        return None
    try:
        return (default_home() / "key").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


CONNECT_TIMEOUT = 10.0
MAX_SILENCE_S = 60.0
MARGIN = 30.0
"""Seconds that the client waits longer than the server was asked to take."""


@dataclass(frozen=True, slots=True)
class HttpConnection:
    server_url: str
    api_key: str | None
    timeout: float
    retries: int

    @classmethod
    def find(cls, server_url: str | None, api_key: str | None, timeout: float, retries: int) -> HttpConnection:
        url = find_server_url(server_url)
        return cls(url, find_api_key(url, api_key), timeout, retries)

    def client_options(self) -> dict[str, Any]:
        """Arguments of the pooled ``httpx`` client."""
        headers = {"User-Agent": f"paddock-client/{__version__}"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        options: dict[str, Any] = {"base_url": self.server_url, "headers": headers, "timeout": self.timeout}
        if is_this_machine(self.server_url):
            options["trust_env"] = False  # a proxy cannot reach this machine's own addresses
        if self.server_url.startswith("http://"):
            # Without TLS nothing is verified. An empty context saves the 0.2 s that loading the root certificates
            # takes.
            options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return options

    @property
    def max_silence(self) -> float:
        """Seconds without data after which a stream counts as lost. The server sends keepalives more often."""
        return max(self.timeout, MAX_SILENCE_S)

    def tries(self, call: ApiCall[Any]) -> Tries:
        patience = max(self.timeout, call.server_wait + MARGIN) if call.server_wait else self.timeout
        return Tries(call.repeat, self.retries, patience)

    def request_options(self, call: ApiCall[Any], seconds: float) -> dict[str, Any]:
        """Arguments of ``build_request`` except for the body, which differs between the clients."""
        options: dict[str, Any] = {
            "method": call.method,
            "url": call.path,
            "params": dict(call.params),
            "headers": dict(call.headers),
            "timeout": httpx.Timeout(seconds, connect=min(CONNECT_TIMEOUT, seconds)),
        }
        if call.json is not None:
            options["json"] = dict(call.json)
        return options

    def broken(self, error: httpx.RequestError) -> PaddockError:
        return from_transport(error, self.server_url)

    def refused(self, response: httpx.Response) -> PaddockError:
        return from_response(response, has_key=self.api_key is not None)
