"""Cloning the repository that a sandbox was asked to start with."""

from __future__ import annotations

import hashlib
import re

from paddock.errors import Invalid
from paddock.machine.base import WORKSPACE, Machine, ProcessSpec, Stream

SECONDS = 600.0


class CloneFailed(Invalid):
    code = "git_clone_failed"


async def clone(machine: Machine, url: str) -> str:
    """The directory it was cloned into. Idempotent: the process id comes from the URL, so a second call waits for the
    first clone instead of starting another."""
    target = f"{WORKSPACE}/{_name(url)}"
    process_id = "p_" + hashlib.sha256(f"git clone {url}".encode()).hexdigest()[:16]
    spec = ProcessSpec(
        process_id=process_id,
        argv=["git", "clone", "--", url, target],
        env={"GIT_TERMINAL_PROMPT": "0"},
        hard_timeout=SECONDS,
        label=f"git clone {_without_secrets(url)}",
    )
    await machine.spawn(spec)
    ended = await machine.wait(process_id)
    if ended.exit_code != 0:
        output = await machine.read_output(process_id, Stream.STDERR)
        said = output.data.decode(errors="replace").replace(url, _without_secrets(url)).strip()[-500:]
        raise CloneFailed(f"git could not clone {_without_secrets(url)}: {said or 'no reason given'}")
    return target


def _without_secrets(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


def _name(url: str) -> str:
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "repository"
