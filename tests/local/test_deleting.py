"""Deleting takes everything away, may be repeated, and is finished by the next server where one died over it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.common import disk
from paddock.providers.common.launch import Launcher
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import start_time
from paddock.providers.local import uids
from tests.local import traces
from tests.local.place import PRIVILEGED, Inside, Place, as_root
from tests.support.waiting import until

NOTHING = traces.NOTHING


async def test_nothing_is_left(place: Place, inside: Inside) -> None:
    await inside.start("sleep 1000 & sleep 1000 & exec sleep 1000")
    await inside.says("mkdir -p a/b && chmod 000 a/b a && echo x > /tmp/f")
    running = place.running(inside.sandbox_id)
    there = traces.look(place.root)
    assert there.folders == {f"sandboxes/{inside.sandbox_id}"}
    if PRIVILEGED:
        assert there.loops and there.groups and there.claims and there.processes
    await place.provider.delete(inside.sandbox_id)
    assert start_time(running.pid) is None
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_it_may_be_repeated_and_be_at_once(place: Place, inside: Inside) -> None:
    await asyncio.gather(*(place.provider.delete(inside.sandbox_id) for _ in range(5)))
    await place.provider.delete(inside.sandbox_id)
    assert await place.provider.list() == []


async def test_two_servers_may_delete_the_same_one_at_once(place: Place, inside: Inside) -> None:
    other = place.build()
    await other.start()
    await asyncio.gather(place.provider.delete(inside.sandbox_id), other.delete(inside.sandbox_id))
    assert await place.provider.list() == await other.list() == []
    await other.close()
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_a_delete_that_died_half_way_is_finished_by_the_next_server(place: Place, inside: Inside) -> None:
    """It had been put into the trash, with its processes still running."""
    pid = place.running(inside.sandbox_id).pid
    place.folder(inside.sandbox_id).rename(place.root / "trash" / "half.way")
    await place.restart()
    assert await place.provider.list() == []
    await until(lambda: start_time(pid) is None)
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_files_of_a_deleted_one_that_cannot_be_read_are_removed_too(place: Place, inside: Inside) -> None:
    await inside.says("mkdir -p d/e/f && touch d/e/f/g && chmod 000 d/e/f d/e d")
    await place.provider.delete(inside.sandbox_id)
    await until(lambda: traces.look(place.root).folders == frozenset())


async def test_a_create_that_is_cancelled_leaves_nothing(place: Place) -> None:
    await place.create()  # what all of them share is there from now on
    for delay in (0.001, 0.004, 0.008, 0.016, 0.03):
        attempt = asyncio.create_task(place.provider.create(place.spec()))
        await asyncio.sleep(delay)
        attempt.cancel()
        await asyncio.wait([attempt])
    known = {f"sandboxes/{found.sandbox_id}" for found in await place.provider.list()}
    await until(lambda: traces.look(place.root).folders == known)
    await place.delete_all()
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_a_create_that_fails_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.providers.local.plan.HOSTNAME", "x" * 100)  # longer than the kernel takes
    with pytest.raises(errors.ProviderRefused, match="hostname"):
        await place.provider.create(place.spec())
    await until(lambda: traces.look(place.root) == NOTHING)


@as_root
async def test_a_disk_that_cannot_be_mounted_is_refused_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.providers.common.disk.copy_sparse", lambda source, target: target.write_bytes(b""))
    with pytest.raises(errors.ProviderRefused, match="disk"):
        await place.provider.create(place.spec())
    await until(lambda: traces.look(place.root) == NOTHING)


@as_root
async def test_an_image_that_is_in_use_is_never_mounted_again(place: Place, inside: Inside) -> None:
    image = place.folder(inside.sandbox_id) / disk.IMAGE
    with image.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    launcher = Launcher(Programs.find().launcher, b"")
    who = ["users", "range", str(uids.base(uids.SLOTS)), "65536"]
    words = [*who, "enter", str(place.root / "stage"), "image", str(image), "raw", "done"]
    refused = await asyncio.to_thread(launcher.attempt, words, 10)
    launcher.close()
    assert refused is not None and "in use" in refused


@as_root
async def test_a_record_that_has_lost_its_process_starts_no_second_one_on_the_same_disk(
    place: Place, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_BUSY_SECONDS", 0.2)
    await inside.put("/workspace/kept", "here")
    record = place.record(inside.sandbox_id)
    await place.provider.close()
    record.with_running(None).save(place.folder(inside.sandbox_id))
    place.provider = place.build()
    await place.provider.start()
    with pytest.raises(errors.PaddockError, match="in use"):
        await place.provider.resume(inside.sandbox_id)
    assert record.running is not None and record.running.alive()
    record.save(place.folder(inside.sandbox_id))
    assert await (await place.inside(inside.sandbox_id)).get("/workspace/kept") == b"here"


@as_root
async def test_claims_of_ids_that_nobody_has_are_given_back_by_the_next_server(place: Place, inside: Inside) -> None:
    folder = place.root / "drafts" / "died"
    slot = uids.claim(folder)
    claim = Path("/run/paddock/uids", str(slot))
    os.utime(claim, (0, 0))
    mine = place.running(inside.sandbox_id).uid_slot
    await place.restart()
    assert not claim.exists()
    assert Path("/run/paddock/uids", str(mine)).exists()


@as_root
async def test_a_claim_that_another_server_is_making_right_now_is_left_alone(place: Place) -> None:
    """Else two sandboxes could have the same ids."""
    folder = place.root / "drafts" / "being-made"
    folder.mkdir()
    slot = uids.claim(folder)
    other = place.build()
    await other.start()
    await other.close()
    claim = Path("/run/paddock/uids", str(slot))
    assert claim.exists()
    claim.unlink()
