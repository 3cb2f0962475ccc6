"""Directories of the host inside a sandbox: its files look like the user's there, and stay their owner's here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.base import Mount
from tests.local.place import PRIVILEGED, Place, as_root


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_text("from the host\n")
    if PRIVILEGED:
        for path in (folder, folder / "sub", folder / "file"):
            os.chown(path, 12_345, 12_345)
    return folder


async def test_both_sides_see_what_the_other_writes(place: Place, shared: Path) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    assert await inside.says("cat /mnt/shared/file") == "from the host"
    await inside.says("echo from inside > /mnt/shared/sub/new && echo more >> /mnt/shared/file")
    assert (shared / "sub/new").read_text() == "from inside\n"
    (shared / "late").write_text("later\n")
    assert await inside.says("cat /mnt/shared/late; rm /mnt/shared/sub/new") == "later"
    assert not (shared / "sub/new").exists()


async def test_files_are_the_users_inside_and_their_owners_outside(place: Place, shared: Path) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    await inside.says("mkdir /mnt/shared/made && touch /mnt/shared/made/f && chmod 600 /mnt/shared/made/f")
    assert await inside.says("stat -c '%U:%G' /mnt/shared/file /mnt/shared/made/f") == "user:user\nuser:user"
    owner = shared.stat().st_uid, shared.stat().st_gid
    for path in ("made", "made/f", "file"):
        status = (shared / path).stat()
        assert (status.st_uid, status.st_gid) == owner
    assert (shared / "made/f").stat().st_mode & 0o777 == 0o600


@as_root
async def test_files_of_anybody_else_stay_out_of_reach_even_for_root(place: Place, shared: Path) -> None:
    (shared / "roots").write_text("the host's root")
    (shared / "roots").chmod(0o600)
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    assert await inside.says("stat -c '%u' /mnt/shared/roots") == "65534"
    assert (await inside.run("cat /mnt/shared/roots", user="root")).code != 0
    assert (await inside.run("chown 0:0 /mnt/shared/file", user="root")).code != 0
    assert (shared / "file").stat().st_uid == 12_345


async def test_a_read_only_mount_is_read_only_for_everybody(place: Place, shared: Path) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared", read_only=True),))
    assert await inside.says("cat /mnt/shared/file") == "from the host"
    for user in ("user", "root"):
        assert (await inside.run("echo x > /mnt/shared/new", user=user)).code != 0
        assert (await inside.run("rm /mnt/shared/file", user=user)).code != 0
        assert (await inside.run("mount -o remount,rw /mnt/shared", user=user)).code != 0
    assert sorted(path.name for path in shared.iterdir()) == ["file", "sub"]


async def test_programs_in_a_mount_run_but_never_as_somebody_else(place: Place, shared: Path) -> None:
    tool = shared / "tool"
    tool.write_text("#!/bin/sh\nid -u\n")
    tool.chmod(0o4755)
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    assert await inside.says("/mnt/shared/tool") == "1000"


async def test_a_mount_may_be_the_workspace_and_there_may_be_many(place: Place, shared: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    if PRIVILEGED:
        os.chown(second, 777, 777)
    inside = await place.create(mounts=(Mount(str(shared), "/workspace"), Mount(str(second), "/opt/deep/er")))
    assert await inside.says("cat file; touch made /opt/deep/er/too && stat -c %U made /opt/deep/er/too") == (
        "from the host\nuser\nuser"
    )
    assert (shared / "made").exists() and (second / "too").stat().st_uid == second.stat().st_uid


async def test_a_symlink_in_a_mount_is_resolved_inside(place: Place, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the host's")
    (shared / "up").symlink_to(tmp_path / "secret")
    (shared / "relative").symlink_to("../secret")
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    assert (await inside.run("cat /mnt/shared/up /mnt/shared/relative")).out == b""
    with pytest.raises(errors.PathNotFound):
        await inside.get("/mnt/shared/relative")


async def test_a_source_that_is_missing_is_refused_and_not_made(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for source in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(errors.ConfinementUnavailable, match=source.name):
            await place.provider.create(place.spec(mounts=(Mount(str(source), "/mnt/x"),)))
    assert not (tmp_path / "missing").exists()
    assert await place.provider.list() == []


async def test_the_folder_of_the_sandboxes_is_not_for_mounting(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place.root)
    for source in (place.root, place.root / "sandboxes", tmp_path / "link"):
        with pytest.raises(errors.ConfinementUnavailable):
            await place.provider.create(place.spec(mounts=(Mount(str(source), "/mnt/x"),)))


async def test_nothing_above_the_folder_of_the_sandboxes_is_for_mounting(place: Place) -> None:
    """Through it one sandbox would reach the disks and sockets of all others."""
    for source in (place.home, Path("/")):
        with pytest.raises(errors.ConfinementUnavailable):
            await place.provider.create(place.spec(mounts=(Mount(str(source), "/mnt/x"),)))


async def test_mounts_are_there_again_after_a_start_from_the_files(place: Place, shared: Path) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    await place.end(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("cat /mnt/shared/file; echo x > /mnt/shared/again") == "from the host"
    assert (shared / "again").exists()


async def test_a_source_that_is_gone_later_keeps_the_sandbox_from_starting_but_not_from_being_deleted(
    place: Place, shared: Path
) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"),))
    await place.end(inside.sandbox_id)
    shared.rename(shared.with_name("elsewhere"))
    with pytest.raises(errors.PaddockError):
        await place.provider.resume(inside.sandbox_id)
    assert not shared.exists()
    shared.with_name("elsewhere").rename(shared)
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("cat /mnt/shared/file") == "from the host"


async def test_deleting_a_sandbox_leaves_what_was_mounted_alone(place: Place, shared: Path) -> None:
    inside = await place.create(mounts=(Mount(str(shared), "/mnt/shared"), Mount(str(shared), "/workspace")))
    await inside.says("touch /workspace/kept")
    await place.provider.delete(inside.sandbox_id)
    await place.restart()
    assert sorted(path.name for path in shared.iterdir()) == ["file", "kept", "sub"]
