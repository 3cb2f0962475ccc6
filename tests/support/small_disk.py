"""A small file system of its own, which a test can fill to the last byte without harming anybody else."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

_MIB = 1 << 20
_MOUNT_FAILED = 32
"""The exit status of ``umount`` where somebody uses what is mounted."""


class SmallDisk:
    """One that is mounted now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "somebody-elses-file"
        self._names = path / "somebody-elses-files"

    @property
    def free_mb(self) -> float:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize / _MIB

    def fill(self, leave_mb: int = 0) -> None:
        """As another program on the host would: all but so much of it."""
        with self._filler.open("ab", buffering=0) as file:
            if (most := int(self.free_mb) - leave_mb) > 0:  # blocks that nobody has to write
                with contextlib.suppress(OSError):
                    end = file.seek(0, os.SEEK_END)
                    os.posix_fallocate(file.fileno(), end, most * _MIB)
                    file.seek(0, os.SEEK_END)
            for size in (_MIB, 4096, 1):
                while self.free_mb > leave_mb:
                    try:
                        file.write(b"x" * size)
                    except OSError as error:
                        assert error.errno == errno.ENOSPC
                        break
            os.fsync(file.fileno())

    def fill_inodes(self) -> None:
        """As many names as it has room for, of files without content."""
        self._names.mkdir()
        for number in range(1 << 20):
            try:
                (self._names / str(number)).touch()
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)
        shutil.rmtree(self._names, ignore_errors=True)

    def fail(self) -> None:
        """From now on it is read-only for everybody, as after an error of the disk under it."""
        device = os.stat(self.path).st_dev  # noqa: PTH116
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("as if a write had failed")

    def remount(self, option: str) -> None:
        _run("mount", "-o", f"remount,{option}", str(self.path))


@contextmanager
def small_disk(folder: Path, size_mb: int, inodes: int | None = None) -> Iterator[SmallDisk]:
    """An ext4 in a file, mounted; skips the test where mounting is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system of its own")
    image, point = folder / "small.img", folder / "small"
    with image.open("wb") as file:
        file.truncate(size_mb * _MIB)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", *(["-N", str(inodes)] if inodes else []), str(image))
    point.mkdir()
    try:
        _run("mount", "-o", "loop,errors=remount-ro", str(image), str(point))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no file system can be mounted here: {error.stderr.strip()}")
    try:
        yield SmallDisk(point)
    finally:
        try:
            wait_until(lambda: _unmounted(point))  # programs of servers that were killed may be about to end
        except AssertionError as error:
            error.add_note(f"in use by {_users_of(point)}")
            raise
        image.unlink()


def _unmounted(point: Path) -> bool:
    try:
        _run("umount", str(point))
    except subprocess.CalledProcessError as error:
        if error.returncode != _MOUNT_FAILED or not point.is_mount():
            raise
        return False
    return True


def _users_of(point: Path) -> list[str]:
    """Loop devices on it, and processes that have a file on it open, or stand in it."""
    loops = [path for path in Path("/sys/block").glob("loop*/loop/backing_file") if str(point) in path.read_text()]
    found = [f"{path.parts[3]} ({path.read_text().strip()})" for path in loops]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            links = [*process.joinpath("fd").iterdir(), process / "cwd", process / "root"]
            if any(str(point) in str(link.readlink()) for link in links):
                found.append(process.joinpath("cmdline").read_text().replace("\0", " "))
    return found


def _run(*command: str) -> None:
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env={"PATH": path})
