"""A sandbox is started again from a disk that its user has prepared: links and odd things where folders should be.

Whatever is on it, the start works inside or is refused. Nothing of the host is touched: canaries watch.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.common import disk
from tests.local import traces
from tests.local.place import PRIVILEGED, Inside, Place
from tests.support.waiting import PATIENCE_S, until

PLACES = ("etc", "tmp", "run", "dev", "proc", "sys", "usr", "var", "home", "workspace", "mnt", "root", "bin", "lib64")


@dataclass
class Canary:
    """A folder of the host to which the sandbox's links lead."""

    path: Path

    def __post_init__(self) -> None:
        for name in (
            "bin",
            "lib/dpkg",
            "paddock/bin",
            "pts",
            "shm",
            "user",
            "self",
            "system/cpu",
            "devices/system/cpu",
        ):
            (self.path / name).mkdir(parents=True)
        for name in ("secret", "sudo", "null", "resolv.conf", "passwd", "bin/sudo", "bin/sh", "hostname"):
            (self.path / name).write_text("the host's")
        if PRIVILEGED:
            for path in (self.path, *self.path.rglob("*")):
                path.chmod(0o777)  # nothing but the sandbox's walls keeps anybody from it
        self._before = self._look()

    def _look(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in (self.path, *sorted(self.path.rglob("*"))):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_dev, content)
        return found

    def is_untouched(self) -> bool:
        return self._look() == self._before


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


async def again(place: Place, sandbox_id: str) -> Inside | None:
    """Started once more, or None where that was refused with a reason."""
    try:
        await place.provider.resume(sandbox_id)
    except errors.ProviderRefused as refused:
        assert refused.message
        return None
    return await place.inside(sandbox_id)


async def judge(place: Place, inside: Inside | None, canary: Canary) -> None:
    if inside is not None:
        # Through every name that could lead out, as both users, by command and by the file API.
        for user in ("user", "root"):
            writes = "; ".join(f"echo planted > /{name}/planted" for name in PLACES)
            ran = await inside.run(f"({writes}; cat {canary.path}/secret) 2>/dev/null", cwd="/", user=user)
            assert b"the host's" not in ran.out
        for name in PLACES:
            try:
                assert b"the host's" not in await inside.get(f"/{name}/secret")
            except errors.PaddockError as error:
                assert error.status < 500, error.message
        assert (await inside.run("hostname", cwd="/")).text in {"sandbox", ""}
    assert canary.is_untouched()
    assert traces.look(place.root).mounts == frozenset()
    found = await place.provider.list()
    assert len(found) == 1, "it is still known"
    await place.provider.delete(found[0].sandbox_id)
    await until(lambda: traces.look(place.root).folders == frozenset())
    assert canary.is_untouched()


@pytest.mark.parametrize("name", ["etc", "tmp", "workspace", "home", "var", "bin", "mnt", "root", "srv"])
async def test_a_link_to_the_host_made_inside(place: Place, inside: Inside, canary: Canary, name: str) -> None:
    script = (
        f"cd /; rm -rf /{name} 2>/dev/null || mv /{name} /old-{name}; ln -sfn {canary.path} /{name}; readlink /{name}"
    )
    ran = await inside.run(script, user="root", cwd="/")
    await place.end(inside.sandbox_id)
    started = await again(place, inside.sandbox_id)
    if started is not None and ran.code == 0:
        assert (await started.run(f"readlink /{name}", cwd="/")).text in {str(canary.path), ""}
    await judge(place, started, canary)


async def test_everything_that_can_be_replaced_is_replaced_at_once(
    place: Place, inside: Inside, canary: Canary
) -> None:
    script = f"cd /; for name in *; do rm -rf /$name; ln -sfn {canary.path} /$name; done 2>/dev/null; true"
    await inside.run(f"cp /bin/sh /bin/rm /bin/ln /tmp; {script}", user="root", cwd="/")
    await place.end(inside.sandbox_id)
    await judge(place, await again(place, inside.sandbox_id), canary)


@pytest.mark.parametrize(
    "name", ["/usr/bin/sudo", "/usr/local/bin/sudo", "/etc/resolv.conf", "/etc/passwd", "/etc/group"]
)
async def test_a_file_that_the_start_uses_is_a_link_to_the_host(
    place: Place, inside: Inside, canary: Canary, name: str
) -> None:
    await inside.run(f"rm -f {name}; mkdir -p $(dirname {name}); ln -sfn {canary.path}/secret {name}", user="root")
    await place.end(inside.sandbox_id)
    await judge(place, await again(place, inside.sandbox_id), canary)


class Disk:
    """The private layer of a sandbox that is stopped, changed behind its back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def link(self, name: str, target: str) -> None:
        if PRIVILEGED:
            self._debug(f"symlink root/upper/{name} {target}")
        else:
            self._plain(name).symlink_to(target)

    def file(self, name: str) -> None:
        if PRIVILEGED:
            self._debug(f"write /dev/null root/upper/{name}")
        else:
            self._plain(name).write_text("")

    def pipe(self, name: str) -> None:
        if PRIVILEGED:
            self._debug(f"mknod root/upper/{name} p")
        else:
            os.mkfifo(self._plain(name))

    def _debug(self, request: str) -> None:
        image = self._folder / disk.IMAGE
        with disk._unused(image):
            done = subprocess.run(
                ["debugfs", "-w", "-R", request, image], capture_output=True, text=True, timeout=PATIENCE_S
            )
        assert done.returncode == 0 and not done.stderr.strip().splitlines()[1:], done.stderr

    def _plain(self, name: str) -> Path:
        return self._folder / disk.FOLDERS / "root/upper" / name


@pytest.mark.parametrize("name", ["run", "dev", "proc", "sys", "usr", "etc", "tmp", "var", "workspace", "home", "bin"])
async def test_a_link_to_the_host_that_was_put_on_the_disk(
    place: Place, inside: Inside, canary: Canary, name: str
) -> None:
    """Some names cannot be replaced from inside, because something is mounted there. The start does not rely on it."""
    await place.end(inside.sandbox_id)
    Disk(place.folder(inside.sandbox_id)).link(name, str(canary.path))
    await judge(place, await again(place, inside.sandbox_id), canary)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("run", "/dev"),
        ("dev", "/run"),
        ("proc", "/sys"),
        ("sys", "/proc"),
        ("proc", "/"),
        ("run", "/proc/self/root"),
        ("run", "/proc/1/cwd"),
        ("dev", "../../../../../../dev"),
        ("usr", "/usr"),
        ("run", "run"),
        ("sys", "/workspace"),
        ("proc", "/nowhere/at/all"),
    ],
)
async def test_links_to_each_other_and_in_circles(
    place: Place, inside: Inside, canary: Canary, name: str, target: str
) -> None:
    await place.end(inside.sandbox_id)
    Disk(place.folder(inside.sandbox_id)).link(name, target)
    await judge(place, await again(place, inside.sandbox_id), canary)


@pytest.mark.parametrize("name", ["run", "proc", "dev", "workspace", "etc", "usr"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
async def test_something_else_where_a_folder_should_be(
    place: Place, inside: Inside, canary: Canary, name: str, kind: str
) -> None:
    await place.end(inside.sandbox_id)
    hostile = Disk(place.folder(inside.sandbox_id))
    (hostile.file if kind == "file" else hostile.pipe)(name)
    await judge(place, await again(place, inside.sandbox_id), canary)
