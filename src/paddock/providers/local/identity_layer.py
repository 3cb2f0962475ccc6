"""The layer above a root file system that is not ours: the user ``user``, ``/workspace``, names, package settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from paddock.providers.local import host_root, packages
from paddock.providers.local.made_aside import made_aside


def make_identity(
    identity: Path, root: Path, privileged: bool, finish: Callable[[Path], None] = lambda draft: None
) -> None:
    """What a sandbox needs and a root file system may lack. ``finish`` may add to it."""
    with made_aside(identity) as draft:
        for name in ("etc", "proc", "sys", "dev", "run", "workspace", f"home/{host_root.USER}"):
            (draft / name).mkdir(mode=0o755, parents=True)
        (draft / "tmp").mkdir(mode=0o755)
        (draft / "tmp").chmod(0o1777)
        user, number = host_root.USER, host_root.USER_ID
        etc = draft / "etc"
        passwd = _with_entry(root / "etc/passwd", user, f"{user}:x:{number}:{number}:{user}:/home/{user}:/bin/bash")
        (etc / "passwd").write_text(passwd)
        (etc / "group").write_text(_with_entry(root / "etc/group", user, f"{user}:x:{number}:"))
        host_root.write_network_files(etc)
        packages.configure(etc, root / "etc")
        if (root / "etc/apt").is_dir():
            (etc / "apt/apt.conf.d").mkdir(parents=True)
            (etc / "apt/apt.conf.d/99paddock").write_text('APT::Sandbox::User "root";\n')
        if privileged:
            for path in (draft / "workspace", draft / "home" / user):
                os.chown(path, number, number)
        finish(draft)


def _with_entry(path: Path, name: str, entry: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = ["root:x:0:0:root:/root:/bin/sh"] if path.name == "passwd" else ["root:x:0:"]
    number = entry.split(":")[2]
    kept = [line for line in lines if line.split(":")[0] != name and line.split(":")[2:3] != [number]]
    return "\n".join([*kept, entry]) + "\n"
