"""Finds the server's URL and the API key if the caller gives none."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

from paddock.errors import Invalid, Unauthorized
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
