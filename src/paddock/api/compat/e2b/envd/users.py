"""The users of a sandbox, by its own ``/etc/passwd``, and the paths that they mean.

Nobody proves who they are: whoever holds the sandbox's token may act as any of its users, root included, as in E2B.
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
"""Files are handled by root and given to the user, because that is how envd does it: a user's upload to a directory of
somebody else succeeds there."""

_MAX_PASSWD = 64 << 10
"""Bytes of it that are read: it is the sandbox's own, and read again for each name that is not in it."""
_MAX_KNOWN = 16
"""Of those that were asked for, in each sandbox."""
_FRESH_SECONDS = 3.0
_MAX_SANDBOXES = 4096


class UnknownUser(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"invalid username: '{name}'")


class BadPath(Exception):
    """A path that means nothing to this user."""


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    home: str

    def resolve(self, path: str) -> str:
        """Where a path leads: relative ones start at the home, not at any working directory."""
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
    """Those of all sandboxes, each kept for a moment: a command must not wait for a file that was just read."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, dict[str, Account]]] = OrderedDict()
        self._shared: dict[str, bool] = {}

    async def find(self, machine: Machine, name: str) -> Account:
        """The user of this name. One that is new is found at once."""
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
        """As whom to look at files: as root, who sees all of them, unless one id stands for all users of the sandbox.
        There whose a file is depends on who looks, and it is the account's."""
        if (shared := self._shared.get(machine.sandbox_id)) is None:
            root, own = [await machine.stat("/", user=name) for name in (ROOT, DEFAULT_USER)]
            shared = self._shared[machine.sandbox_id] = root.owner != own.owner
            if len(self._shared) > _MAX_SANDBOXES:
                self._shared.pop(next(iter(self._shared)))
        return account.name if shared else ROOT


def basic_user(authorization: str) -> str | None:
    """Whom ``Authorization: Basic`` names; the password, which is empty, is not looked at."""
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
        return dict(_BUILT_IN)  # a sandbox without one has these two all the same
    if len(data) >= _MAX_PASSWD:
        del data[data.rfind(b"\n") + 1 :]  # a line that was cut short would name another home
    found = dict(_BUILT_IN)
    for line in data.decode(errors="replace").splitlines():
        fields = line.split(":")
        if len(fields) >= 6 and fields[0] and fields[5].startswith("/"):
            found[fields[0]] = Account(fields[0], posixpath.normpath(fields[5]))
    return found
