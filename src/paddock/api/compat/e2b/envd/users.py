"""The users in a sandbox's ``/etc/passwd``, and path resolution for them.

Users are not authenticated: a holder of the sandbox's token may act as any of its users, including root, as in E2B.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import time
from collections import OrderedDict
from dataclasses import dataclass

from paddock import errors
from paddock.machine.base import DEFAULT_USER, Machine

ROOT = "root"
"""Files are written as root and then given to the user, as envd does: uploads to another user's directory succeed."""

_MAX_PASSWD = 64 << 10
"""Maximum bytes read of it: the sandbox controls it, and it is read again for each unknown name."""
_MAX_KNOWN = 16
"""Maximum cached users per sandbox."""
_FRESH_SECONDS = 3.0
_MAX_SANDBOXES = 4096


class UnknownUser(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"invalid username: '{name}'")


class BadPath(Exception):
    """A path that this user cannot have."""


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    home: str

    def resolve(self, path: str) -> str:
        """Make a path absolute: relative ones are below the home, not the working directory."""
        if "\0" in path:
            raise BadPath("a path must not contain a NUL character")
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        elif path.startswith("~"):
            raise BadPath("home directories of other users cannot be reached by '~'")
        plain = posixpath.normpath(posixpath.join(self.home, path))
        return "/" + plain.lstrip("/")


_BUILT_IN = {ROOT: Account(ROOT, "/root"), DEFAULT_USER: Account(DEFAULT_USER, "/home/user")}


class PasswdAccounts:
    """Users of all sandboxes, cached for a moment, because a command should not wait for a file that was just read."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, dict[str, Account]]] = OrderedDict()
        self._shared: dict[str, bool] = {}

    async def find(self, machine: Machine, name: str) -> Account:
        """The user with this name. New users are found at once."""
        read_at, known = self._known.get(machine.sandbox_id, (0.0, {}))
        if name not in known or time.monotonic() - read_at > _FRESH_SECONDS:
            every = await _read(machine)
            asked = [*known, name][-_MAX_KNOWN:]
            known = {each: every[each] for each in asked if each in every}
            self._known[machine.sandbox_id] = (time.monotonic(), known)
            self._known.move_to_end(machine.sandbox_id)
            if len(self._known) > _MAX_SANDBOXES:
                self._known.popitem(last=False)
        if (found := known.get(name)) is None:
            raise UnknownUser(name)
        return found

    async def viewer(self, machine: Machine, account: Account) -> str:
        """The user for listing files: root, who sees all of them, unless one id stands for all users of the sandbox.
        There the owner shown depends on the viewer, so it is the account."""
        if (shared := self._shared.get(machine.sandbox_id)) is None:
            root, own = [await machine.stat("/", user=name) for name in (ROOT, DEFAULT_USER)]
            shared = self._shared[machine.sandbox_id] = root.owner != own.owner
            if len(self._shared) > _MAX_SANDBOXES:
                self._shared.pop(next(iter(self._shared)))
        return account.name if shared else ROOT


def basic_user(authorization: str) -> str | None:
    """The user in ``Authorization: Basic``; the password, which is empty, is ignored."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[0] or None


async def _read(machine: Machine) -> dict[str, Account]:
    data = bytearray()
    try:
        async for chunk in machine.read_file("/etc/passwd", 0, _MAX_PASSWD, user=ROOT):
            data += chunk
    except (errors.NotFound, errors.PathConflict, errors.PathDenied):
        return dict(_BUILT_IN)  # without /etc/passwd these two exist anyway
    if len(data) >= _MAX_PASSWD:
        del data[data.rfind(b"\n") + 1 :]  # a truncated line would contain another home
    found = dict(_BUILT_IN)
    for line in data.decode(errors="replace").splitlines():
        fields = line.split(":")
        if len(fields) >= 6 and fields[0] and fields[5].startswith("/"):
            found[fields[0]] = Account(fields[0], posixpath.normpath(fields[5]))
    return found
