"""Templates that are directories: whole root file systems of their own, never changed by what runs on them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from paddock import errors
from tests.local.place import PRIVILEGED, Place, as_ordinary_user, as_root

TOOLS = ("sh", "cat", "ls", "id", "stat", "touch", "rm", "mkdir", "ln", "mv", "readlink", "grep")


def plant(templates: Path, name: str = "tiny") -> Path:
    """A few programs with the libraries that they need, an ``/etc`` of its own, and nothing else."""
    root = templates / name
    for folder in ("usr/bin", "etc", "opt"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for tool in TOOLS:
        source = shutil.which(tool, path="/usr/bin:/bin")
        assert source is not None
        _copy_program(Path(source), root)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nuser:x:77:77::/nowhere:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "opt/of-the-template").write_text("as it was made\n")
    return root


def _copy_program(program: Path, root: Path) -> None:
    shutil.copy(program, root / "usr/bin" / program.name)
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+\.so\S*)", listing):
        target = root / library.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)


def fingerprint(root: Path) -> str:
    seen = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        seen.update(f"{path} {status.st_mode} {status.st_uid} {status.st_size} {status.st_mtime_ns}".encode())
        seen.update(repr(sorted(os.listxattr(path, follow_symlinks=False))).encode())
        if path.is_file() and not path.is_symlink():
            seen.update(path.read_bytes())
    return seen.hexdigest()


async def test_host_is_the_default_and_directories_follow_by_name(place: Place) -> None:
    for name in ("zebra", "ant", ".hidden", "Not A Name"):
        (place.templates / name).mkdir(parents=True)
    (place.templates / "file").write_text("no directory")
    assert await place.provider.templates() == ["host", "ant", "zebra"]


async def test_a_directory_is_a_whole_system_with_user_and_workspace_added(place: Place) -> None:
    plant(place.templates)
    inside = await place.create(template_id="tiny")
    assert await inside.says("id -u; id -un; stat -c '%u %a' /workspace /home/user /tmp") == (
        f"1000\nuser\n1000 755\n1000 755\n{0 if PRIVILEGED else 1000} 1777"
    )
    assert await inside.says("cat /opt/of-the-template; ls /usr/bin | grep -c .") == f"as it was made\n{len(TOOLS)}"
    assert (await inside.run("ls /usr/bin/python3 /usr/lib/git-core")).code != 0, "this is not the host's /usr"
    assert await inside.says("cat /proc/sys/kernel/hostname; sudo id -u") == "sandbox\n0"
    assert await inside.says("cat /etc/passwd | grep user") == "user:x:1000:1000:user:/home/user:/bin/bash"


async def test_a_template_is_never_changed(place: Place) -> None:
    root = plant(place.templates)
    before = fingerprint(root)
    inside = await place.create(template_id="tiny")
    await inside.says(
        "sh -c 'echo changed > /opt/of-the-template; rm /usr/bin/grep; mkdir /usr/new; mv /etc/passwd /etc/moved; "
        "touch /opt; ln -s / /opt/up'",
        user="root",
    )
    assert await inside.says("cat /opt/of-the-template; readlink /opt/up", user="root") == "changed\n/"
    assert fingerprint(root) == before
    other = await place.create(template_id="tiny")
    assert await other.says("cat /opt/of-the-template; ls /usr/bin/grep") == "as it was made\n/usr/bin/grep"
    await place.provider.delete(inside.sandbox_id)
    assert fingerprint(root) == before


async def test_changes_are_there_again_after_a_start_from_the_files(place: Place) -> None:
    plant(place.templates)
    inside = await place.create(template_id="tiny")
    await inside.says("rm /opt/of-the-template; echo new > /opt/new; rm /usr/bin/grep", user="root")
    await place.end(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("ls /opt; cat /opt/new; ls /usr/bin/grep 2>/dev/null || ls /opt") == "new\nnew\nnew"


@pytest.mark.parametrize("name", ["no-such-template", "../tiny", "", ".hidden", "a/b", "tiny\n", "Tiny"])
async def test_an_unknown_template_is_refused_with_the_known_ones(place: Place, name: str) -> None:
    plant(place.templates)
    (place.templates / ".hidden").mkdir()
    with pytest.raises(errors.TemplateNotFound, match="host, tiny"):
        await place.provider.create(place.spec(template_id=name))
    assert await place.provider.list() == []
    assert list((place.root / "drafts").iterdir()) == []


async def test_a_template_without_a_shell_can_be_started_and_says_what_is_missing(place: Place) -> None:
    (place.templates / "bare").mkdir(parents=True)
    inside = await place.create(template_id="bare")
    ran = await inside.run("true")
    assert ran.code == 127 and b"/bin/sh" in ran.err
    await inside.put("/workspace/file", "content")
    assert await inside.get("/workspace/file") == b"content"


@as_root
async def test_sudo_of_a_template_is_ours(place: Place) -> None:
    root = plant(place.templates)
    (root / "usr/bin/sudo").write_text("#!/bin/sh\necho the wrong one\n")
    (root / "usr/bin/sudo").chmod(0o4755)
    inside = await place.create(template_id="tiny")
    assert await inside.says("/usr/bin/sudo id -u; sudo id -u") == "0\n0"


@as_root
async def test_files_in_a_template_keep_their_owners(place: Place) -> None:
    root = plant(place.templates)
    os.chown(root / "opt/of-the-template", 33, 44)
    inside = await place.create(template_id="tiny")
    assert await inside.says("stat -c '%u:%g' /opt/of-the-template /usr/bin/ls") == "33:44\n0:0"


@as_ordinary_user
async def test_a_template_of_somebody_else_is_refused(place: Place) -> None:
    place.templates.mkdir()
    (place.templates / "theirs").symlink_to("/usr")
    with pytest.raises(errors.ProviderRefused, match="another user"):
        await place.provider.create(place.spec(template_id="theirs"))
