"""Layers that want out, want more than they may have, or are damaged: refused in a sentence, and nothing is left."""

from __future__ import annotations

import io
import os
import random
import stat
import tarfile
from pathlib import Path

import pytest

from tests.images import building
from tests.images.building import Entry, digest, directory, gzipped, hard_link, plain_image, symlink, tar, zstd
from tests.images.conftest import ImageHome
from tests.images.registry import Registry

_ENOUGH = {"PADDOCK_IMAGE_LAYER_MB": "8"}


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def _unpacked(images: ImageHome, registry: Registry, layer: bytes) -> Path:
    images.image("pull", registry.add("app", "1", plain_image(layer)))
    return images.layer(digest(layer))


REFUSED = {
    "a name that leads out": tar(Entry("../outside", content=b"x")),
    "a name that leads out behind a directory": tar(directory("a"), Entry("a/../../outside", content=b"x")),
    "a hard link to a file outside": tar(hard_link("passwd", "../../../../etc/passwd")),
    "a hard link to what is not in the layer": tar(hard_link("passwd", "/etc/passwd")),
    "a hard link through a link": tar(symlink("etc", "/etc"), hard_link("passwd", "etc/passwd")),
    "a hard link to a directory": tar(directory("a"), hard_link("b", "a")),
    "links in a circle": tar(symlink("a", "b"), symlink("b", "a"), Entry("a/file", content=b"x")),
    "a whiteout of nothing": tar(Entry(".wh.")),
    "a whiteout of the directory above": tar(directory("a"), Entry("a/.wh...", content=b"")),
    "a name that is too long": tar(Entry("x" * 5000, content=b"x")),
    "more directories than a path may have": tar(Entry("/".join("d" * 600), content=b"x")),
    "an owner that cannot be": tar(Entry("a", uid=1 << 40)) if os.geteuid() == 0 else b"no tar",
    "no tar": b"this is no tar" * 100,
    "the beginning of a tar": tar(Entry("a", content=b"x" * 5000))[:2000],
    "a damaged header": tar(Entry("a", content=b"x" * 512), Entry("b"))[:1024] + b"\x01" * 1024,
}


@pytest.mark.parametrize("what", REFUSED)
def test_hostile_layer_is_refused(images: ImageHome, registry: Registry, what: str) -> None:
    error = images.failure("pull", registry.add("app", "1", plain_image(REFUSED[what])))
    assert error["code"] == "image_invalid" and "cannot be used" in error["message"]
    assert _files(images.home / "images/layers") == set() and images.drafts() == []


def test_damaged_compression_is_refused(images: ImageHome, registry: Registry) -> None:
    layer = tar(Entry("a", content=random.Random(1).randbytes(100_000)))
    for packed in (gzipped(layer)[:-2000], gzipped(layer)[:-8] + b"12345678", zstd(layer)[:-1000]):
        image = building.image([(layer, packed)])
        assert images.failure("pull", registry.add("app", "1", image))["code"] in ("image_invalid", "image_corrupt")
    assert _files(images.home / "images/layers") == set()


def test_links_lead_no_further_than_the_top_of_the_layer(images: ImageHome, registry: Registry) -> None:
    layer = tar(
        symlink("absolute", "/var"),
        Entry("absolute/a", content=b"a"),
        symlink("upwards", "../../../../../../../tmp"),
        Entry("upwards/b", content=b"b"),
        Entry("/leading/slash", content=b"c"),
    )
    root = _unpacked(images, registry, layer)
    found = {"absolute", "upwards", "var", "var/a", "tmp", "tmp/b", "leading", "leading/slash"}
    assert _files(root) == found


def test_devices_are_left_out_and_attributes_of_overlays_dropped(images: ImageHome, registry: Registry) -> None:
    forged = {"SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.redirect": "/etc"}
    layer = tar(
        Entry("null", tarfile.CHRTYPE),
        Entry("disk", tarfile.BLKTYPE),
        Entry("pipe", tarfile.FIFOTYPE),
        directory("d", pax={**forged, "SCHILY.xattr.user.kept": "yes"}),
    )
    root = _unpacked(images, registry, layer)
    assert _files(root) == {"pipe", "d"} and stat.S_ISFIFO((root / "pipe").stat().st_mode)
    assert os.listxattr(root / "d") == ["user.kept"]


@pytest.mark.parametrize("packed", [gzipped, zstd])
def test_layer_that_unpacks_to_too_much_is_refused(images: ImageHome, registry: Registry, packed: object) -> None:
    assert callable(packed)
    for bomb in (tar(Entry("zeros", content=bytes(9 << 20))), tar(Entry("small")) + bytes(9 << 20)):
        image = building.image([(bomb, packed(bomb))])
        error = images.failure("pull", registry.add("app", "1", image), **_ENOUGH)
        assert error["code"] == "image_invalid" and "more bytes" in error["message"]
    assert _files(images.home / "images/layers") == set() and images.drafts() == []


def test_sparse_file_of_a_terabyte_is_refused(images: ImageHome, registry: Registry) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("sparse")
        info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1"}
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    image = plain_image(made.getvalue())
    assert images.failure("pull", registry.add("app", "1", image), **_ENOUGH)["code"] == "image_invalid"


def test_headers_of_many_megabytes_are_refused(images: ImageHome, registry: Registry) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 3 << 30
    layer = header.tobuf() + bytes(1 << 20)
    assert images.failure("pull", registry.add("app", "1", plain_image(layer)))["code"] == "image_invalid"


def test_mutated_layers_are_refused_or_unpacked_but_never_escape(
    images: ImageHome, registry: Registry, tmp_path: Path
) -> None:
    """Many in one image, so that all are unpacked by one command: the first that is refused ends it."""
    chance = random.Random(20)
    good = tar(
        directory("a"), Entry("a/b", content=b"x" * 700), symlink("c", "a"), hard_link("d", "a/b"), Entry(".wh.e")
    )
    before = _files(tmp_path.parent)
    for _ in range(6):
        layer = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            layer[chance.randrange(len(layer))] = chance.randrange(256)
        done = images.command("pull", registry.add("app", "1", plain_image(bytes(layer))))
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr
    outside = {path for path in _files(tmp_path.parent) - before if f"{tmp_path.name}/home" not in path}
    assert outside == set()
