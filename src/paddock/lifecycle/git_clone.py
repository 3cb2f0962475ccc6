"""Clones the git repository that a sandbox was created with."""

from __future__ import annotations

import hashlib
import re

from paddock.errors import Invalid, ProcessNotFound
from paddock.machine.base import WORKSPACE, Machine, ProcessSpec, Stream
from paddock.redaction import HIDDEN, without_credentials

SECONDS = 600.0


class CloneFailed(Invalid):
    code = "git_clone_failed"


async def clone(machine: Machine, url: str) -> str:
    """Clone and return the target directory. Idempotent: the process id is derived from the URL, so a second call waits
    for the first clone instead of starting another."""
    shown = without_credentials(url)
    target = f"{WORKSPACE}/{_name(url)}"
    process_id = "p_" + hashlib.sha256(f"git clone {shown}".encode()).hexdigest()[:16]
    spec = ProcessSpec(
        process_id=process_id,
        argv=["git", "clone", "--", url, target],
        env={"GIT_TERMINAL_PROMPT": "0"},
        hard_timeout=SECONDS,
        label=f"git clone {shown}",
    )
    if f"//{HIDDEN}@" in url:
        await _begun(machine, process_id, shown)
    else:
        await machine.spawn(spec)
    ended = await machine.wait(process_id)
    if ended.exit_code != 0:
        output = await machine.read_output(process_id, Stream.STDERR)
        said = output.data.decode(errors="replace").replace(url, shown).strip()[-500:]
        raise CloneFailed(f"git could not clone {shown}: {said or 'no reason given'}")
    return target


async def _begun(machine: Machine, process_id: str, shown: str) -> None:
    """Check that the clone was started. The password was only in the memory of the server that began this create;
    without that server only a clone already started can be waited for."""
    try:
        await machine.process(process_id)
    except ProcessNotFound:
        raise CloneFailed(
            f"The server stopped before it could clone {shown}, and passwords are not stored. Create the sandbox again."
        ) from None


def _name(url: str) -> str:
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "repository"
