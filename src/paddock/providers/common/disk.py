"""A sandbox's private disk: an ext4 image with a hard size limit, or plain directories where images cannot be used.

An image is a sparse copy of an empty one that was formatted once. It holds all of a sandbox's changes, its spool and
its state, so that deleting the sandbox deletes one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from paddock import errors

IMAGE = "disk.img"
FOLDERS = "disk"
_BYTES_PER_INODE = 16_384
_FICLONE = 0x40049409
_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = (2).to_bytes(4, "little")
_MKFS_TIMEOUT_S = 120
_FSCK_FIXED = 1
_BUSY_SECONDS = 10.0


class Disks:
    """Empty images, one of each size requested so far."""

    def __init__(self, root: Path, images: bool) -> None:
        self.images = images
        self._root = root

    def make(self, folder: Path, size_mb: int) -> None:
        """Create the disk of a new sandbox; does nothing if it has one already."""
        if not self.images:
            make_folders(folder / FOLDERS)
            return
        image = folder / IMAGE
        if not image.exists():
            copy_sparse(self._empty(size_mb), image)

    def check(self, folder: Path, *, thoroughly: bool = False) -> None:
        """Check the file system after an unclean shutdown. ``thoroughly``: after a file-system error; data that cannot
        be repaired is lost."""
        image = folder / IMAGE
        if not image.exists():
            return
        with _unused(image):
            found = _run(["e2fsck", *(["-f", "-y"] if thoroughly else ["-p"]), str(image)])
        if found.returncode & ~_FSCK_FIXED:
            raise errors.ProviderRefused(f"The disk of this sandbox is damaged: {_last_line(found)}")

    def _empty(self, size_mb: int) -> Path:
        path = self._root / f"empty-{size_mb}.img"
        if path.exists():
            return path
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with draft.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(size_mb << 20)
        journal = ["-J", "size=4"] if size_mb >= 64 else ["-O", "^has_journal"]
        options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"
        # fmt: off
        made = _run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-i", str(_BYTES_PER_INODE),
                     *journal, "-O", "^resize_inode", "-E", options, str(draft)])
        # fmt: on
        if made.returncode:
            draft.unlink()
            raise errors.ProviderUnavailable(f"No disk could be made: {_last_line(made)}")
        draft.replace(path)
        return path


def abandon(state: str) -> None:
    """Shut the file system down without a flush, because it is about to be deleted; unmounting is then fast.

    ``state`` is the agent's directory on it. Only root may do this; on failure unmounting just takes longer.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _unused(image: Path) -> Iterator[None]:
    """Wait until the image is unmounted: the launcher's lock lives as long as the loop device, which an open descriptor
    may keep alive."""
    descriptor = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise errors.ProviderUnavailable("The disk of this sandbox is still in use.") from None
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def make_folders(root: Path) -> None:
    root.mkdir(mode=0o700, exist_ok=True)


def share_blocks(source: int, target: int) -> bool:
    """Reflink ``source`` to ``target``; False if the file system does not support it."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def copy_sparse(source: Path, target: Path) -> None:
    """Copy by reflink if the file system supports it, else only the data between holes."""
    with source.open("rb") as read:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as write:
            if share_blocks(read.fileno(), write.fileno()):
                return
            size = os.fstat(read.fileno()).st_size
            write.truncate(size)
            at = 0
            while at < size:
                try:
                    at = os.lseek(read.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break  # no more data
                end = os.lseek(read.fileno(), at, os.SEEK_HOLE)
                while at < end:
                    at += os.copy_file_range(read.fileno(), write.fileno(), end - at, at, at)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    path = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_MKFS_TIMEOUT_S, check=False, env={"PATH": path}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.ProviderUnavailable(f"{command[0]} could not be run (package e2fsprogs): {error}") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
