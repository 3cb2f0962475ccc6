"""Which port of which sandbox a request is for: by its host, by E2B's routing headers, or by its path.

One function, so that the gateway and the app can never disagree:

- ``<port>-<key>.<any domain>``; the key may be followed by ``-`` and something that is ignored, as in E2B's host names.
  The domain is not looked at: a name that leads here is ours, and what it may do is decided by keys, links and tokens.
- ``E2b-Sandbox-Id`` and ``E2b-Sandbox-Port``, both or neither.
- ``/p/<sandbox_id or key>/<port>/…``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from paddock import errors, ids

ENVD_PORT = 49983

ID_HEADER = "e2b-sandbox-id"
PORT_HEADER = "e2b-sandbox-port"

CONTROL_PLANE = "/e2b/"
"""Where E2B's control plane is; envd has no such path."""

_KEY = re.compile(r"[a-z0-9]{1,63}")
_PORT = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"(?P<label>[0-9]+-[^.:\[\]]*)\.[^:\[\]]+(?::[0-9]{1,5})?")
# `10-0-0-5.some.domain` is how some name services spell an address: a host of the API, not a port of a sandbox.
_DASHED_ADDRESS = re.compile(r"[0-9]{1,3}(?:-[0-9]{1,3}){3}")
_PATH = re.compile(r"/p/(?P<name>[^/]*)/(?P<port>[^/]*)(?=/|$)")


class AddressForm(Enum):
    """How a request names a port. Only the host form has an origin of its own; the others share the API's."""

    HOST = "host"
    HEADER = "header"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class Destination:
    key: str
    """The sandbox's DNS-safe key; in the path form its id will do as well."""
    port: int
    form: AddressForm = AddressForm.HOST
    prefix: str = ""
    """What the path form put before the path, without a slash at the end."""

    @property
    def by_id(self) -> bool:
        """Named by its id, which can be guessed: whether it exists must not be revealed."""
        return ids.is_sandbox_id(self.key)


def find_destination(host: str, header: Callable[[str], str | None], path: str) -> Destination | None:
    """None: the request is for the API. ``header`` gives a header's value by its lower-case name.

    Raises MalformedRequest where it names a port of a sandbox in a way that cannot be.
    """
    match = _HOST.fullmatch(host.lower())
    if match is not None and not _DASHED_ADDRESS.fullmatch(match["label"]):
        port, _, name = match["label"].partition("-")
        return Destination(_key(name), _port(port))
    name_given, port_given = header(ID_HEADER), header(PORT_HEADER)
    if name_given is not None or port_given is not None:
        if not name_given or not port_given:
            missing = "E2b-Sandbox-Port" if name_given else "E2b-Sandbox-Id"
            raise errors.MalformedRequest(f"The header {missing} is missing: both say which port of which sandbox.")
        destination = Destination(_key(name_given.strip()), _port(port_given.strip()), AddressForm.HEADER)
        # E2B's SDKs before 2.27 send both headers with a connect request to the control plane, too.
        return None if destination.port == ENVD_PORT and path.startswith(CONTROL_PLANE) else destination
    in_path = _PATH.match(path)
    if in_path is not None:
        name = in_path["name"]
        key = name if ids.is_sandbox_id(name) else _key(name)
        return Destination(key, _port(in_path["port"]), AddressForm.PATH, in_path[0])
    return None


def _key(name: str) -> str:
    key = name.partition("-")[0]
    if not _KEY.fullmatch(key):
        raise errors.MalformedRequest(f"{name[:80]!r} is not the id of a sandbox.")
    return key


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise errors.MalformedRequest(f"{text[:20]!r} is not a port: 1 to 65535.")
    return int(text)
