"""Pulling from a registry: what is fetched, from where, with which credentials, and what each failure says."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.images import building
from tests.images.building import Entry, digest, directory, gzipped, plain_image, tar, zstd
from tests.images.conftest import ImageHome
from tests.images.registry import Registry, running
from tests.support.tls_front import TlsFront

BASE = tar(directory("etc"), Entry("etc/base", content=b"base\n"))
TOP = tar(directory("app"), Entry("app/run", content=b"#!/bin/sh\n", mode=0o755))


def test_pulled_image_is_listed_shown_and_unpacked(images: ImageHome, registry: Registry) -> None:
    config = {"Env": ["PATH=/app", "EMPTY="], "User": "app", "WorkingDir": "/app", "Cmd": ["run"], "Labels": {"a": "b"}}
    reference = registry.add("team/app", "1.0", plain_image(BASE, TOP, config=config))
    images.image("pull", reference)
    [listed] = images.image("list")["images"]
    assert (listed["reference"], listed["complete"], listed["sandboxes"]) == (reference, True, 0)
    shown = images.image("show", reference)
    assert shown["layers"] == [digest(BASE), digest(TOP)]
    assert (shown["env"], shown["user"], shown["cmd"]) == ({"PATH": "/app", "EMPTY": ""}, "app", ["run"])
    assert (images.layer(digest(BASE)) / "etc/base").read_text() == "base\n"
    assert stat.S_IMODE((images.layer(digest(TOP)) / "app/run").stat().st_mode) == 0o755
    assert images.drafts() == []


def test_layers_of_each_compression_are_unpacked(images: ImageHome, registry: Registry) -> None:
    layers = [tar(Entry(name, content=name.encode())) for name in ("plain", "gzip", "zstd", "members")]
    half = len(layers[3]) // 2
    packed = [layers[0], gzipped(layers[1]), zstd(layers[2]), gzipped(layers[3][:half]) + gzipped(layers[3][half:])]
    images.image("pull", registry.add("app", "1", building.image(zip(layers, packed, strict=True))))
    for name, layer in zip(("plain", "gzip", "zstd", "members"), layers, strict=True):
        assert (images.layer(digest(layer)) / name).read_text() == name


def test_layer_that_is_there_is_not_fetched_again(images: ImageHome, registry: Registry) -> None:
    images.image("pull", registry.add("base", "1", plain_image(BASE)))
    images.image("pull", registry.add("app", "1", plain_image(BASE, TOP)))
    assert registry.sent[digest(gzipped(BASE))] == len(gzipped(BASE))


def test_digest_names_an_image_whatever_its_tag_leads_to(images: ImageHome, registry: Registry) -> None:
    first = plain_image(BASE)
    registry.add("app", "1", first)
    registry.add("app", "1", plain_image(TOP))
    reference = f"{registry.name}/app@{first.digest}"
    images.image("pull", reference)
    assert images.image("show", reference)["layers"] == [digest(BASE)]


def test_index_leads_to_the_image_of_this_machine_or_the_one_asked_for(images: ImageHome, registry: Registry) -> None:
    own, other = plain_image(BASE), plain_image(TOP, architecture="riscv64")
    index = building.index((other, "riscv64"), (own, building.ARCHITECTURE))
    reference = registry.add("app", "1", own, other, index=index)
    images.image("pull", reference)
    assert images.image("show", reference)["layers"] == [digest(BASE)]
    images.image("pull", reference, "--platform", "linux/riscv64")
    assert images.image("show", reference)["platform"] == "linux/riscv64"
    error = images.failure("pull", reference, "--platform", "linux/s390x")
    assert error["code"] == "image_invalid" and "linux/riscv64" in error["message"]


def test_image_of_another_architecture_is_refused(images: ImageHome, registry: Registry) -> None:
    error = images.failure("pull", registry.add("app", "1", plain_image(BASE, architecture="riscv64")))
    assert error["code"] == "image_invalid" and "linux/riscv64" in error["message"]


@pytest.mark.parametrize("bearer", [False, True])
def test_credentials_are_asked_for_and_used(images: ImageHome, bearer: bool) -> None:
    with running(Registry(username="ci", password="pa55:word", bearer=bearer)) as registry:
        reference = registry.add("private", "1", plain_image(BASE))
        images.allow(registry)
        error = images.failure("pull", reference)
        assert (error["code"], error["status"]) == ("registry_denied", 403)
        images.allow(registry, username="ci", password="wrong")
        assert images.failure("pull", reference)["code"] == "registry_denied"
        images.allow(registry, username="ci", password="pa55:word")
        images.image("pull", reference)
        assert b"pa55" not in b"".join(path.read_bytes() for path in (images.home / "images").rglob("*.json"))


def test_docker_config_and_its_helper_give_credentials(images: ImageHome, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.mkdir()
    helper = docker / "docker-credential-test"
    answer = json.dumps({"Username": "ci", "Secret": "s3cret"})
    helper.write_text(f"#!/bin/sh\nread registry\n[ \"$1\" = get ] && echo '{answer}'\n")
    helper.chmod(0o755)
    env = {"DOCKER_CONFIG": str(docker), "PATH": f"{docker}:/usr/bin:/bin"}
    with running(Registry(username="ci", password="s3cret")) as registry:
        images.allow(registry)
        reference = registry.add("private", "1", plain_image(BASE))
        (docker / "config.json").write_text(json.dumps({"auths": {registry.name: {"auth": "Y2k6czNjcmV0"}}}))
        images.image("pull", reference, **env)
        images.image("rm", reference)
        (docker / "config.json").write_text(json.dumps({"credHelpers": {registry.name: "test"}}))
        images.image("pull", reference, **env)


def test_private_ca_is_trusted_where_it_is_named(images: ImageHome, tmp_path: Path) -> None:
    front = TlsFront(tmp_path)
    with running(Registry(), front._own) as registry:
        reference = registry.add("app", "1", plain_image(BASE))
        error = images.failure("pull", reference)
        assert error["code"] == "registry_unavailable" and "registries.json" in error["message"]
        images.allow(registry, ca=str(front.authority))
        images.image("pull", reference)


def test_plain_http_is_used_only_where_it_is_named(images: ImageHome) -> None:
    with running(Registry()) as registry:
        reference = registry.add("app", "1", plain_image(BASE))
        assert images.failure("pull", reference)["code"] == "registry_unavailable"
        assert registry.requests == []


def test_mirror_is_asked_first_and_the_registry_for_what_it_lacks(images: ImageHome, registry: Registry) -> None:
    with running(Registry()) as mirror:
        mirrored, other = plain_image(BASE), plain_image(TOP)
        mirror.add("app", "1", mirrored)
        reference = registry.add("app", "1", mirrored)
        images.allow(registry, mirrors=[mirror.url])
        images.image("pull", reference)
        assert registry.requests == []
        images.image("pull", registry.add("other", "1", other))


def test_credentials_do_not_follow_a_redirect(images: ImageHome) -> None:
    with running(Registry()) as storage, running(Registry(username="ci", password="s3cret")) as registry:
        image = plain_image(BASE)
        storage.add("app", "1", image)
        reference = registry.add("app", "1", image)
        registry.elsewhere = storage.url
        images.allow(registry, username="ci", password="s3cret")
        images.image("pull", reference)
        assert set(storage.authorizations) == {""}


def test_unknown_image_and_impossible_name(images: ImageHome, registry: Registry) -> None:
    assert images.failure("pull", f"{registry.name}/nothing:1")["code"] == "image_not_found"
    assert images.failure("pull", "Not A Name")["code"] == "image_invalid"
    assert images.failure("show", "never:pulled")["code"] == "image_not_found"


def test_registry_that_is_busy_for_a_moment_is_asked_again(images: ImageHome, registry: Registry) -> None:
    reference = registry.add("app", "1", plain_image(BASE))
    registry.statuses = [503, 500]
    images.image("pull", reference)


def test_download_continues_where_its_connection_broke(images: ImageHome, registry: Registry) -> None:
    content = tar(Entry("random", content=bytes(range(256)) * 4096))
    image = building.image([(content, content)])
    registry.cut_after = 500_000
    images.image("pull", registry.add("app", "1", image))
    assert registry.sent[digest(content)] == len(content)
    assert (f"/v2/app/blobs/{digest(content)}", "bytes=500000-") in registry.requests


def test_download_begins_again_where_the_registry_knows_no_ranges(images: ImageHome, registry: Registry) -> None:
    content = tar(Entry("random", content=bytes(range(256)) * 4096))
    registry.cut_after, registry.ignores_ranges = 500_000, True
    images.image("pull", registry.add("app", "1", building.image([(content, content)])))


@pytest.mark.parametrize("what", ["layer", "config", "manifest"])
def test_what_does_not_match_its_digest_is_refused_and_not_kept(
    images: ImageHome, registry: Registry, what: str
) -> None:
    image = plain_image(BASE)
    reference = registry.add("app", "1", image)
    of = {"layer": digest(gzipped(BASE)), "config": json.loads(image.manifest)["config"]["digest"], "manifest": "1"}
    original = registry.blobs.get(of[what], image.manifest)
    registry.tampered = {of[what]: original[:-1] + b"x"}
    assert images.failure("pull", reference)["code"] == "image_corrupt"
    assert images.image("list") == {"images": []}
    registry.tampered = {}
    images.image("pull", reference)


def test_layer_that_unpacks_to_something_else_is_refused(images: ImageHome, registry: Registry) -> None:
    reference = registry.add("app", "1", building.image([(TOP, gzipped(BASE))]))
    assert images.failure("pull", reference)["code"] == "image_corrupt"
    assert not images.layer(digest(BASE)).exists() and not images.layer(digest(TOP)).exists()


def test_truncated_blob_is_an_error(images: ImageHome, registry: Registry) -> None:
    image = plain_image(BASE)
    reference = registry.add("app", "1", image)
    registry.tampered = {digest(gzipped(BASE)): gzipped(BASE)[:50]}
    assert images.failure("pull", reference)["code"] in ("registry_unavailable", "image_corrupt")


def test_registry_that_stalls_is_given_up_and_continued_later(images: ImageHome, registry: Registry) -> None:
    content = tar(Entry("random", content=bytes(range(256)) * 4096))
    reference = registry.add("app", "1", building.image([(content, content)]))
    registry.stall_after = 1000
    error = images.failure("pull", reference, PADDOCK_IMAGE_STALL_TIMEOUT="0.5")
    assert error["code"] == "registry_unavailable"
    registry.stall_after = None
    registry.released.set()
    images.image("pull", reference)
    assert registry.requests[-1][1].startswith("bytes=")


def test_layer_larger_than_allowed_is_not_even_fetched(images: ImageHome, registry: Registry) -> None:
    image = plain_image(BASE)
    manifest = json.loads(image.manifest)
    manifest["layers"][0]["size"] = 1 << 40
    image.manifest = json.dumps(manifest).encode()
    error = images.failure("pull", registry.add("app", "1", image))
    assert error["code"] == "image_invalid" and registry.sent == {}
    manifest["layers"][0]["size"] = 30 << 30
    manifest["layers"] *= 20
    image.manifest = json.dumps(manifest).encode()
    assert images.failure("pull", registry.add("app", "1", image))["status"] == 507


def test_something_that_is_no_image_is_refused(images: ImageHome, registry: Registry) -> None:
    image = plain_image(BASE)
    for manifest in (
        b"[]",
        b"{",
        b'{"schemaVersion": 1, "fsLayers": []}',
        b'{"schemaVersion": 2, "layers": [{"digest": "sha256:../../etc/passwd", "size": 1}], "config": {}}',
        image.manifest.replace(b"image.layer.v1.tar", b"helm.chart"),
        image.manifest.replace(b"image.config.v1", b"artifact.v1"),
        b"[" * 100_000,
    ):
        image.manifest = manifest
        assert images.failure("pull", registry.add("app", "1", image))["code"] == "image_invalid"
