"""Starts a command as PID 1 and root of new namespaces: ``inside.py range|single OUTSIDE_UID COMMAND…``.

``range`` maps 65,536 ids from OUTSIDE_UID on, which takes root; ``single`` maps one, as anybody can. It prints one line
when that is not possible here.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

NEW = 0x10000000 | 0x20000000 | 0x00020000 | 0x08000000 | 0x04000000  # user, pid, mount, ipc, uts
PRIVATE = 0x4000 | 0x40000

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def map_ids(pid: int, outside: int, count: int) -> None:
    if count == 1:
        Path(f"/proc/{pid}/setgroups").write_text("deny")
    for kind in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{kind}").write_text(f"0 {outside} {count}")


def enter(outside: int, count: int) -> None:
    """Into new namespaces, as their root. The mapping of a range is written by the parent, who may."""
    if os.getuid() == 0 and count == 1:
        os.setgroups([])
        os.setresgid(outside, outside, outside)
        os.setresuid(outside, outside, outside)
        call("prctl", 4, 1, 0, 0, 0)  # dumpable again: our files in /proc must be ours
    ready, go = os.pipe(), os.pipe()
    parent = os.getpid()
    if count > 1 and os.fork() == 0:
        os.read(ready[0], 1)
        map_ids(parent, outside, count)
        os.write(go[1], b"1")
        os._exit(0)
    call("unshare", NEW)
    if count > 1:
        os.write(ready[1], b"1")
        if os.read(go[0], 1) != b"1":
            raise OSError("the ids were not mapped")
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.setgroups([])
    else:
        map_ids(parent, outside, 1)
    for fd in (*ready, *go):
        os.close(fd)


def main() -> None:
    mode, outside, *command = sys.argv[1:]
    enter(int(outside), 65536 if mode == "range" else 1)
    first = os.fork()
    if first:
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
    call("mount", b"none", b"/", None, PRIVATE, None)
    call("mount", b"proc", b"/proc", b"proc", 0, None)
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"no namespaces here: {error}", file=sys.stderr)
        raise SystemExit(77) from None
