"""Sandboxes of images, by the local provider: what is in them, and what of their image stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import ProcessSpec
from tests.images.building import Entry, directory, plain_image, symlink, tar
from tests.images.conftest import ImageHome
from tests.images.registry import Registry
from tests.local.place import Place

PROGRAMS = ("sh", "cat", "ls", "id", "stat", "env", "rm", "touch", "mkdir")


def _programs(*names: str) -> Iterator[Entry]:
    """Of the host, with the libraries that they need."""
    files = {}
    for name in names:
        path = shutil.which(name)
        assert path is not None
        files[f"usr/bin/{name}"] = path
        for word in subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = word
    for name, source in files.items():
        yield Entry(name, content=Path(source).read_bytes(), mode=0o755)


def _base() -> bytes:
    passwd = b"root:x:0:0:root:/root:/bin/sh\napp:x:777:777::/app:/bin/sh\n"
    return tar(
        directory("usr"),
        directory("usr/bin"),
        symlink("bin", "usr/bin"),
        directory("etc"),
        Entry("etc/passwd", content=passwd),
        directory("data", mode=0o2750, uid=777, gid=777),
        Entry("data/keep", content=b"keep", uid=777),
        Entry("data/gone", content=b"gone"),
        *_programs(*PROGRAMS),
    )


@pytest.fixture(scope="module")
def base() -> bytes:
    return _base()


@pytest.fixture
async def place(images: ImageHome, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    made = Place(images.home, tmp_path_factory.getbasetemp() / "made")
    await made.provider.start()
    yield made
    await made.clear()


async def test_sandbox_has_the_files_of_its_image(
    images: ImageHome, registry: Registry, place: Place, base: bytes
) -> None:
    top = tar(Entry("data/.wh.gone"), Entry("data/new", content=b"new"), Entry("opt/.wh..wh..opq"))
    image = plain_image(base, top, config={"Env": ["GREETING=hello world", "PATH=/usr/bin:/own", "HOME=/nowhere"]})
    reference = registry.add("app", "1", image)
    images.image("pull", reference)
    assert reference in await place.provider.templates()
    inside = await place.create(template_id=reference)
    assert await inside.says("ls /data", user="root") == "keep\nnew"
    assert await inside.says("echo $GREETING $HOME $PATH") == (
        "hello world /home/user /home/user/.local/bin:/usr/bin:/own:/run/paddock/bin"
    )
    # /data is in the upper layer only because of what it changes there
    assert await inside.says("stat -c %a /data", user="root") == "2750"
    assert await inside.says("cat /etc/passwd; id -un; stat -c %a /tmp; touch /workspace/a") == (
        "root:x:0:0:root:/root:/bin/sh\napp:x:777:777::/app:/bin/sh\n"
        "user:x:1000:1000:user:/home/user:/bin/bash\nuser\n1777"
    )
    if os.geteuid() == 0:
        assert await inside.says("stat -c %u:%g /data", user="root") == "777:777"
        assert await inside.says("id -un", user="app") == "app"


async def test_what_a_sandbox_stands_on_survives_its_name_and_a_restart(
    images: ImageHome, registry: Registry, place: Place, base: bytes
) -> None:
    reference = registry.add("app", "1", plain_image(base))
    images.image("pull", reference)
    inside = await place.create(template_id=reference)
    await inside.says("rm /data/gone; mkdir /opt", user="root")
    registry.add("app", "1", plain_image(base, tar(Entry("newer", content=b"x"))))
    images.image("pull", reference)
    images.image("rm", reference)
    images.image("prune", "--all")
    await place.provider.pause(inside.sandbox_id, keep_memory=False)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("ls / /data", user="root")
    assert (await again.run("cat /newer", user="root")).code != 0
    with pytest.raises(errors.TemplateNotFound, match="paddock image pull"):
        await place.create(template_id=reference)
    await place.provider.delete(inside.sandbox_id)
    images.image("prune")
    assert [path for path in (images.home / "images").rglob("*") if path.is_file()] == []


async def test_image_of_150_layers(images: ImageHome, registry: Registry, place: Place, base: bytes) -> None:
    layers = [
        tar(Entry(f"layers/{number}", content=b"x"), Entry("latest", content=b"%d" % number)) for number in range(150)
    ]
    reference = registry.add("deep", "1", plain_image(base, *layers))
    images.image("pull", reference)
    inside = await place.create(template_id=reference)
    assert (
        await inside.says("ls /layers | { n=0; while read x; do n=$((n+1)); done; echo $n; }; cat /latest")
        == "150\n149"
    )


async def test_image_without_shell_or_passwd_says_what_is_missing(
    images: ImageHome, registry: Registry, place: Place
) -> None:
    reference = registry.add("empty", "1", plain_image(tar(*_programs("cat"))))
    images.image("pull", reference)
    inside = await place.create(template_id=reference)
    ran = await inside.run("true")
    assert ran.code == 127 and b"/bin/sh: not found" in ran.err
    spec = ProcessSpec(process_id=new_process_id(), argv=["/usr/bin/cat", "/etc/passwd"], cwd="/workspace")
    started = await inside.machine.spawn(spec)
    chunks = [chunk.data async for chunk in inside.machine.follow(started.process_id)]
    assert b"user:x:1000:1000:" in b"".join(chunks)
