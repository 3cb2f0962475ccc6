"""What stays and what goes: names, shared layers, pulls that were killed, and archives."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.images import building
from tests.images.building import BuiltImage, Entry, digest, directory, gzipped, plain_image, symlink, tar
from tests.images.conftest import Command, ImageHome
from tests.images.registry import Registry
from tests.support.waiting import wait_until

BASE = tar(directory("etc"), Entry("etc/base", content=b"base\n"))
TOP = tar(Entry("top", content=b"top\n"))


def test_removed_image_takes_only_what_no_other_needs(images: ImageHome, registry: Registry) -> None:
    base, app = registry.add("base", "1", plain_image(BASE)), registry.add("app", "1", plain_image(BASE, TOP))
    images.image("pull", base)
    images.image("pull", app)
    images.image("rm", app)
    assert images.layer(digest(BASE)).exists() and not images.layer(digest(TOP)).exists()
    images.image("rm", base)
    assert [path for path in (images.home / "images").rglob("*") if path.is_file()] == []
    assert images.failure("rm", base)["code"] == "image_not_found"


def test_tag_that_moves_leaves_the_old_image_to_prune(images: ImageHome, registry: Registry) -> None:
    reference = registry.add("app", "1", plain_image(BASE))
    images.image("pull", reference)
    registry.add("app", "1", plain_image(TOP))
    images.image("pull", reference)
    assert images.image("show", reference)["layers"] == [digest(TOP)]
    assert images.image("prune")["layers"] == 1
    assert not images.layer(digest(BASE)).exists() and images.layer(digest(TOP)).exists()


def test_image_that_a_sandbox_stands_on_is_kept_until_it_is_gone(images: ImageHome, registry: Registry) -> None:
    reference, image = registry.add("app", "1", plain_image(BASE)), plain_image(BASE)
    images.image("pull", reference)
    note = images.home / "local/sandboxes/one/image.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"digest": image.digest, "env": {}}))
    assert images.image("list")["images"][0]["sandboxes"] == 1
    images.image("rm", reference)
    images.image("prune", "--all")
    assert images.layer(digest(BASE)).exists()
    note.write_text("not JSON")
    assert images.failure("prune")["code"] == "provider_unavailable"
    note.unlink()
    images.image("prune")
    assert not images.layer(digest(BASE)).exists()


def _large(number: int) -> bytes:
    return tar(*(Entry(f"d{number}/f{one}", content=bytes(100) + b"%d" % one) for one in range(4000)))


@pytest.mark.parametrize("moment", ["download", "unpacking"])
def test_killed_pull_leaves_nothing_half_made(images: ImageHome, registry: Registry, moment: str) -> None:
    layer = _large(1)
    reference = registry.add("app", "1", building.image([(layer, layer)]))
    registry.stall_after = 2_000_000 if moment == "download" else None
    pull = Command(images.home).start("image", "pull", reference)
    drafts = images.home / "images/drafts"
    pattern = "*.part" if moment == "download" else "layer-*/root/d1/*"
    wait_until(lambda: any(path.stat().st_size for path in drafts.glob(pattern)))
    pull.send_signal(signal.SIGKILL)
    pull.communicate()
    registry.stall_after = None
    registry.released.set()
    assert images.image("list") == {"images": []} and not images.layer(digest(layer)).exists()
    images.image("pull", reference)
    assert len(list((images.layer(digest(layer)) / "d1").iterdir())) == 4000
    images.image("prune")
    assert images.drafts() == []


def test_prune_beside_a_pull_takes_nothing_of_it(images: ImageHome, registry: Registry) -> None:
    layers = [tar(Entry(f"file{number}", content=os.urandom(200_000))) for number in range(3)]
    reference = registry.add("app", "1", building.image([(layer, layer) for layer in layers]))
    with subprocess.Popen(
        (sys.executable, "-m", "tests.images.pruning", str(images.home)), stdout=subprocess.PIPE, text=True
    ) as pruning:
        assert pruning.stdout is not None
        pruning.stdout.readline()
        try:
            for _ in range(3):
                images.image("pull", reference)
                assert images.image("list")["images"][0]["complete"]
                images.image("rm", reference)
        finally:
            pruning.kill()


def test_two_pulls_of_one_image_at_once_both_succeed(images: ImageHome, registry: Registry) -> None:
    layer = _large(2)
    reference = registry.add("app", "1", building.image([(layer, layer)]))
    pulls = [Command(images.home).start("image", "pull", reference) for _ in range(2)]
    for pull in pulls:
        _, problem = pull.communicate()
        assert pull.returncode == 0, problem
    assert registry.sent[digest(layer)] == len(layer)
    assert images.drafts() == []


def _layout(folder: Path, image: BuiltImage, **notes: str) -> Path:
    for content in (*image.blobs.values(), image.manifest):
        path = folder / "blobs/sha256" / digest(content).partition(":")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    entry = {"mediaType": f"{building.OCI}.manifest.v1+json", "digest": image.digest, "size": len(image.manifest)}
    index = {"schemaVersion": 2, "manifests": [entry | {"annotations": notes}]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def test_oci_layout_is_imported_as_directory_and_as_tar(images: ImageHome, tmp_path: Path) -> None:
    layout = _layout(tmp_path / "layout", plain_image(BASE, TOP))
    assert "--name" in images.failure("import", str(layout))["message"]
    images.image("import", str(layout), "--name", "team/app:1")
    with tarfile.open(tmp_path / "layout.tar", "w") as archive:
        archive.add(layout, arcname=".")
    images.image("rm", "team/app:1")
    images.image("import", str(tmp_path / "layout.tar"), "--name", "other/app:2")
    assert images.image("show", "other/app:2")["layers"] == [digest(BASE), digest(TOP)]
    named = _layout(tmp_path / "named", plain_image(TOP), **{"io.containerd.image.name": "docker.io/library/own:3"})
    images.image("import", str(named))
    assert images.image("show", "own:3")["layers"] == [digest(TOP)]


def test_archive_of_docker_save_is_imported(images: ImageHome, tmp_path: Path) -> None:
    image = plain_image(BASE, TOP)
    config = next(content for content in image.blobs.values() if b"diff_ids" in content)
    layers = ["one/layer.tar", "two/layer.tar"]
    manifest = [{"Config": "config.json", "RepoTags": ["team/app:1", "team/app:latest"], "Layers": layers}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": config,
        "real/layer.tar": BASE,
        layers[1]: TOP,
    }
    path = tmp_path / "saved.tar"
    path.write_bytes(tar(symlink(layers[0], "../real/layer.tar"), *(Entry(*_file(one)) for one in files.items())))
    images.image("import", str(path))
    assert images.image("show", "team/app:latest")["layers"] == [digest(BASE), digest(TOP)]
    assert (images.layer(digest(BASE)) / "etc/base").read_text() == "base\n"


def _file(named: tuple[str, bytes]) -> tuple[str, bytes, bytes]:
    return named[0], tarfile.REGTYPE, named[1]


def test_export_is_what_import_and_other_tools_read(images: ImageHome, registry: Registry, tmp_path: Path) -> None:
    image = plain_image(BASE, TOP, config={"Cmd": ["/top"]})
    reference = registry.add("app", "1", image)
    images.image("pull", reference)
    images.image("export", reference, str(tmp_path / "out.tar"))
    images.image("rm", reference)
    images.image("import", str(tmp_path / "out.tar"))
    assert images.image("show", reference)["digest"] == image.digest
    with tarfile.open(tmp_path / "out.tar") as archive:
        content = archive.extractfile("manifest.json")
        assert content is not None
        [saved] = json.load(content)
        assert {saved["Config"], *saved["Layers"]} <= set(archive.getnames())


def test_archives_that_are_damaged_or_none_are_refused(images: ImageHome, tmp_path: Path) -> None:
    layout = _layout(tmp_path / "layout", plain_image(BASE))
    [blob] = [path for path in (layout / "blobs/sha256").iterdir() if path.read_bytes() == gzipped(BASE)]
    blob.write_bytes(gzipped(BASE)[:-1] + b"x")
    assert images.failure("import", str(layout), "--name", "a:1")["code"] == "image_corrupt"
    blob.unlink()
    assert images.failure("import", str(layout), "--name", "a:1")["code"] == "image_invalid"
    escaping = tmp_path / "escaping"
    escaping.mkdir()
    (escaping / "manifest.json").write_text(json.dumps([{"Config": "../../../etc/passwd", "Layers": []}]))
    (tmp_path / "no.tar").write_bytes(b"nothing" * 1000)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("nothing"))
    (tmp_path / "other.tar").write_bytes(made.getvalue())
    for path in (escaping, tmp_path / "no.tar", tmp_path / "other.tar"):
        assert images.failure("import", str(path), "--name", "a:1")["code"] == "image_invalid"
    assert images.failure("import", str(tmp_path / "none.tar"))["code"] == "file_not_found"
    assert images.image("list") == {"images": []}
