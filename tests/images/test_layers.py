"""What an unpacked layer is on the disk: what overlayfs needs, and all that the tar said."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

from tests.images.building import Entry, digest, directory, hard_link, plain_image, symlink, tar
from tests.images.conftest import ImageHome
from tests.images.registry import Registry

PRIVILEGED = os.geteuid() == 0
OPAQUE = "trusted.overlay.opaque" if PRIVILEGED else "user.overlay.opaque"


def _is_whiteout(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, OPAQUE) == b"y"
    except OSError:
        return False


def test_modes_owners_times_links_and_attributes_are_kept(images: ImageHome, registry: Registry) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    pax = {"SCHILY.xattr.user.note": "héllo\n", "SCHILY.xattr.security.capability": capability.decode()}
    layer = tar(
        directory("d", mode=0o1777, uid=3, gid=4, mtime=1234),
        Entry("d/f", content=b"content", mode=0o4711, uid=1000, gid=2000, mtime=5678, pax=pax),
        hard_link("d/h", "d/f"),
        symlink("d/s", "../nowhere"),
        directory("closed", mode=0o000),
        Entry("closed/inside", content=b"x", mode=0o000),
        Entry("pipe", tarfile.FIFOTYPE, mode=0o640),
        Entry("ümlaut \n", content=b""),
    )
    images.image("pull", registry.add("app", "1", plain_image(layer)))
    root = images.layer(digest(layer))
    found, file = (root / "d").stat(), (root / "d/f").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o1777, 1234)
    assert (stat.S_IMODE(file.st_mode), file.st_mtime, file.st_nlink) == (0o4711, 5678, 2)
    assert str((root / "d/s").readlink()) == "../nowhere"
    assert os.getxattr(root / "d/f", "user.note").decode() == "héllo\n"
    assert (root / "ümlaut \n").exists() and stat.S_IMODE((root / "closed").stat().st_mode) == 0
    if PRIVILEGED:
        assert (found.st_uid, found.st_gid, file.st_uid, file.st_gid) == (3, 4, 1000, 2000)
        assert os.getxattr(root / "d/f", "security.capability") == capability
    else:
        assert file.st_uid == os.geteuid()


def test_whiteouts_become_what_overlays_take_for_deleted(images: ImageHome, registry: Registry) -> None:
    layer = tar(
        Entry("etc/.wh.gone"),
        Entry("opaque/.wh..wh..opq"),
        Entry("opaque/new", content=b"new"),
        # The marker of a directory that this layer makes anew hides only what is below it
        Entry(".wh.anew"),
        directory("anew"),
        Entry("anew/file", content=b"x"),
        # in whichever order they come
        directory("before"),
        Entry("before/file", content=b"x"),
        Entry(".wh.before"),
        # and of a file nothing is left to hide
        Entry("file", content=b"x"),
        Entry(".wh.file"),
        Entry(".wh..wh.plnk/1"),
    )
    images.image("pull", registry.add("app", "1", plain_image(layer)))
    root = images.layer(digest(layer))
    assert _is_whiteout(root / "etc/gone")
    assert [_is_opaque(root / name) for name in ("opaque", "anew", "before", "etc")] == [True, True, True, False]
    assert {name: (root / name).read_bytes() for name in ("anew/file", "before/file", "file", "opaque/new")} == {
        "anew/file": b"x",
        "before/file": b"x",
        "file": b"x",
        "opaque/new": b"new",
    }


def test_later_entry_replaces_an_earlier_one(images: ImageHome, registry: Registry) -> None:
    layer = tar(
        Entry("a", content=b"1"),
        Entry("a", content=b"2"),
        directory("b"),
        Entry("b/inside", content=b"x"),
        symlink("b", "a"),
        symlink("c", "a"),
        directory("c"),
        Entry("c/inside", content=b"y"),
    )
    images.image("pull", registry.add("app", "1", plain_image(layer)))
    root = images.layer(digest(layer))
    assert (root / "a").read_bytes() == b"2" and str((root / "b").readlink()) == "a"
    assert (root / "c/inside").read_bytes() == b"y" and not (root / "c").is_symlink() and _is_opaque(root / "c")


def test_only_the_owner_may_enter_the_store(images: ImageHome, registry: Registry) -> None:
    images.image("pull", registry.add("app", "1", plain_image(tar(Entry("su", mode=0o4755)))))
    assert stat.S_IMODE((images.home / "images").stat().st_mode) == 0o700
