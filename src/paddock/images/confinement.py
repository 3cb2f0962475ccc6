"""Shuts this process into one directory before it reads what a stranger wrote.

Afterwards there is nothing but that directory: no other mount or process, no network, no capability except those over
files, and none of that ever comes back. For a process of one thread, which has imported all that it needs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_LAST_CAPABILITY = 63
_CHOWN, _DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _FSETID, _SETFCAP = 0, 1, 2, 3, 4, 31
_KEPT = sum(1 << one for one in (_CHOWN, _DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _FSETID, _SETFCAP))
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)


def confine(root: Path, *, memory_bytes: int, file_bytes: int, cpu_seconds: int) -> None:
    """``root`` becomes ``/``, in a child of this process, which waits for it. Raises OSError where the kernel does not
    let this process do so."""
    privileged = os.geteuid() == 0
    if not privileged:
        _become_root_of_own_namespace()
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWPID)
    _go_on_as_child()
    _pivot(root)
    _limit(memory_bytes, file_bytes, cpu_seconds)
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    _drop_capabilities()
    os.umask(0)


def _become_root_of_own_namespace() -> None:
    """Its root is this user, whose files it may change whatever their modes are."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _go_on_as_child() -> None:
    """The first process of the new process namespace: others, which may have the same user, cannot be signalled."""
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _pivot(root: Path) -> None:
    path = os.fsencode(root)
    _call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    _call("mount", path, path, None, _MS_BIND, None)
    place = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    # Unlike a remount, this adds flags only: an ordinary user must not take others from a mount of the host's.
    attributes = struct.pack("QQQQ", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, 0, 0, 0)
    _call("syscall", _SYS_MOUNT_SETATTR, place, b"", _AT_EMPTY_PATH, attributes, len(attributes))
    os.fchdir(place)
    os.close(place)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _limit(memory_bytes: int, file_bytes: int, cpu_seconds: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _drop_capabilities() -> None:
    for number in range(_LAST_CAPABILITY + 1):
        if not _KEPT >> number & 1 and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # EINVAL: the kernel knows no further ones
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    head = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    sets = b"".join(struct.pack("III", part, part, 0) for part in (_KEPT & 0xFFFF_FFFF, _KEPT >> 32))
    _call("capset", head, sets)


def _call(name: str, *arguments: object) -> None:
    typed = [ctypes.c_ulong(one) if isinstance(one, int) and one >= 0 else one for one in arguments]
    if getattr(_libc, name)(*typed) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
