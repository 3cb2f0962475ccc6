"""What both clients know about their server: URL, key, timeouts, and how a call becomes a request."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

import httpx

from paddock import __version__
from paddock.client.call import ApiCall
from paddock.client.discovery import find_api_key, find_server_url, is_this_machine
from paddock.client.errors import from_response, from_transport
from paddock.client.retry import Tries
from paddock.errors import PaddockError

CONNECT_TIMEOUT = 10.0
LONGEST_SILENCE = 60.0
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
    def longest_silence(self) -> float:
        """Seconds without data after which a stream counts as lost. The server sends keepalives more often."""
        return max(self.timeout, LONGEST_SILENCE)

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
