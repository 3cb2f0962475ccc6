"""Installs the agent in a vendor's machine and starts it. Every step may be repeated."""

from __future__ import annotations

import asyncio
import platform
import secrets
from dataclasses import dataclass

from paddock import errors
from paddock.providers.common.programs import agent_for
from paddock.providers.vendor.base import AGENT_PORT, ScriptResult, Vendor

_PORT_TAKEN, _NO_USERS, _NO_USER, _OTHER_MACHINE = 3, 4, 8, 7

_SCRIPT = """
[ "$(uname -m)" = {architecture} ] || {{ uname -m; exit 7; }}
cd {folder} && chmod 700 . && chmod 700 {fresh} && mv -f {fresh} agent || exit 9
{prepare}
exec ./agent remote --port {port} --state {folder}/state --token {folder}/token --mode {mode}
"""
_USER = """
id user >/dev/null 2>&1 || useradd -m -s /bin/bash user >/dev/null 2>&1 || adduser -D user >/dev/null || exit 8
[ -d /workspace ] || { mkdir -p /workspace && chown user: /workspace; } || exit 8
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where and as which user the agent runs: as root it acts for every user, otherwise only for its own."""

    user: str
    folder: str
    mode: str
    prepare: str


_FOR_ALL = _Place("root", "/var/lib/paddock", "range", _USER)
_FOR_ONE = _Place("user", "/home/user/.paddock", "own", "")


async def install(vendor: Vendor, reference: str, token: str) -> None:
    """Install and start the agent. On return it is listening; if it was running before, it now accepts this token."""
    architecture = platform.machine()
    place = _FOR_ALL
    for _ in range(3):
        done = await _attempt(vendor, reference, token, place, architecture)
        if done.exit_code in (0, _PORT_TAKEN):
            return
        if done.exit_code == _NO_USERS and place is _FOR_ALL:
            place = _FOR_ONE
        elif done.exit_code == _OTHER_MACHINE and done.output.strip() != architecture:
            architecture = done.output.strip()
        else:
            break
    raise errors.ProviderUnavailable(_why(vendor, done))


async def _attempt(vendor: Vendor, reference: str, token: str, place: _Place, architecture: str) -> ScriptResult:
    fresh = f"agent.{secrets.token_hex(4)}"  # another server may be doing the same
    files = {
        f"{place.folder}/{fresh}": await asyncio.to_thread(agent_for, architecture, f"{vendor.title}'s"),
        f"{place.folder}/token": token.encode(),
    }
    await vendor.upload(reference, files, place.user)
    script = _SCRIPT.format(
        architecture=architecture,
        folder=place.folder,
        fresh=fresh,
        prepare=place.prepare,
        port=AGENT_PORT,
        mode=place.mode,
    )
    return await vendor.run(reference, script, place.user)


def _why(vendor: Vendor, done: ScriptResult) -> str:
    said = done.output.strip()[-500:] or f"exit code {done.exit_code}"
    if done.exit_code == _NO_USER:
        said = "the template has no user 'user' and no way to make one"
    return f"Paddock's agent could not be started in the machine at {vendor.title}: {said}."
