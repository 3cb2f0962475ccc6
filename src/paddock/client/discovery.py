"""Where the server is and which key opens it, when the caller does not say."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

from paddock.errors import Invalid, Unauthorized


def find_server_url(server_url: str | None = None) -> str:
    """The argument, ``PADDOCK_URL``, else ``SANDBOX_HOST`` and ``SANDBOX_PORT``, else this machine's port 8080."""
    url = server_url or os.environ.get("PADDOCK_URL")
    if not url:
        host = os.environ.get("SANDBOX_HOST") or "127.0.0.1"
        port = os.environ.get("SANDBOX_PORT") or "8080"
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
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

    The key file opens the server of this machine, so it is never sent to another one.
    """
    key = api_key or os.environ.get("PADDOCK_API_KEY") or _key_in_file(server_url) or ""
    key = key.strip()
    if not key.isascii() or any(not "!" <= character <= "~" for character in key):
        # Refused here, because the HTTP library would show it in its own complaint.
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


def _key_in_file(server_url: str) -> str | None:
    if not is_this_machine(server_url):
        return None
    from paddock.settings import default_home  # slow to import, and seldom needed

    try:
        return (default_home() / "key").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
