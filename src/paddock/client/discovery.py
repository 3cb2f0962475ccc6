"""Where the server is and which key opens it, when the caller does not say."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit


def find_server_url(server_url: str | None = None) -> str:
    """The argument, ``PADDOCK_URL``, else ``SANDBOX_HOST`` and ``SANDBOX_PORT``, else this machine's port 8080."""
    url = server_url or os.environ.get("PADDOCK_URL")
    if not url:
        host = os.environ.get("SANDBOX_HOST") or "127.0.0.1"
        port = os.environ.get("SANDBOX_PORT") or "8080"
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return (url if "://" in url else f"http://{url}").rstrip("/")


def find_api_key(server_url: str, api_key: str | None = None) -> str | None:
    """The argument, ``PADDOCK_API_KEY``, else the key file that ``paddock up`` wrote.

    The key file opens the server of this machine, so it is never sent to another one.
    """
    if key := api_key or os.environ.get("PADDOCK_API_KEY"):
        return key
    if not is_this_machine(server_url):
        return None
    try:
        return _key_file().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def is_this_machine(server_url: str) -> bool:
    host = urlsplit(server_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost") or host == socket.gethostname().lower():
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _key_file() -> Path:
    from paddock.settings import default_home  # costs more to import than the rest of the client together

    return default_home() / "key"
