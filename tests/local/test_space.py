"""Room on the host's disk: who gets how much of it, and who is refused. What a full one does is in test_full_disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock import errors
from paddock.disk_space import MIB, Room
from paddock.providers.base import Resources, Shape
from paddock.providers.common.mounted_disk import MountedDisk
from paddock.providers.local import disk_allocator
from paddock.providers.local.disk_allocator import DiskAllocator, DiskPolicy, look_pause, share, share_with_claims
from tests.local.place import Place, as_root


@pytest.mark.parametrize(
    ("amount", "most", "weights", "shares"),
    [
        (100, [10, 20], [1, 1], [10, 20]),
        (100, [500, 500], [1, 1], [50, 50]),
        (100, [10, 500, 500], [1, 1, 1], [10, 45, 45]),
        (100, [500, 500], [3, 1], [75, 25]),
        (0, [5, 5], [1, 1], [0, 0]),
        (-50, [5], [1], [0]),
        (50, [], [], []),
    ],
)
def test_what_is_left_is_shared_by_weight(amount: int, most: list[int], weights: list[int], shares: list[int]) -> None:
    assert share(amount, most, weights) == shares


def test_a_claim_comes_before_the_weight_of_others() -> None:
    assert share_with_claims(100, [0, 16], [500, 500], [32, 4]) == [74, 25]
    assert share_with_claims(16, [0, 16], [500, 500], [32, 4]) == [0, 16], "who took much gets what the others leave"
    assert share_with_claims(16, [16, 16], [500, 500], [32, 4]) == [8, 8]


@pytest.mark.parametrize(
    ("spent", "tight", "needs_more", "pause"),
    [
        (0.001, False, False, 1.0),
        (0.001, True, False, 0.1),
        (0.001, True, True, 0.1),
        (0.2, True, False, 4.0),
        (0.2, True, True, 0.3),
        (0.5, True, True, 0.5),
    ],
)
def test_shares_are_set_anew_soon_while_somebody_is_at_the_end_of_one_that_can_grow(
    spent: float, tight: bool, needs_more: bool, pause: float
) -> None:
    assert look_pause(spent, tight=tight, needs_more=needs_more) == pytest.approx(pause)


async def test_who_comes_to_the_end_of_a_share_that_can_grow_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = {"one": 1000 * MIB, "two": 1000 * MIB}

    def handle(name: str) -> Any:
        spec = SimpleNamespace(resources=Resources(disk_mb=1000), key=name)
        return SimpleNamespace(
            record=SimpleNamespace(spec=spec, reference=name),
            running=SimpleNamespace(pid=1),
            paused=False,
            disk=lambda: MountedDisk(name, 1000 * MIB, 1000 * MIB - disks[name], disks[name], 4096),
        )

    allocator = DiskAllocator(tmp_path, DiskPolicy(reserve_mb=100), lambda: list(map(handle, disks)))

    async def looked() -> tuple[bool, bool]:
        """Whether shares are small, and whether somebody needs a larger one soon."""
        return await allocator.share_out(), allocator.needs_more

    monkeypatch.setattr(MountedDisk, "keep_back", lambda *_: None)
    monkeypatch.setattr(disk_allocator, "room", lambda _: Room(9000 * MIB, 1100 * MIB, 0, 0))
    await looked()  # 500 MB each
    assert await looked() == (True, False)
    disks["one"] -= 490 * MIB
    monkeypatch.setattr(disk_allocator, "room", lambda _: Room(9000 * MIB, 610 * MIB, 0, 0))
    assert await looked() == (True, True)
    assert await looked() == (True, False), "it has got more, and needs nothing now"
    disks["one"], disks["two"] = 250 * MIB, 750 * MIB
    monkeypatch.setattr(disk_allocator, "room", lambda _: Room(9000 * MIB, 101 * MIB, 0, 0))
    assert await looked() == (True, False), "there is nothing more to give"


async def refused(tmp_path: Path, made: Path, policy: DiskPolicy) -> str:
    place = Place(tmp_path, made, disks=policy)
    await place.provider.start()
    try:
        with pytest.raises(errors.HostDiskFull) as told:
            await place.create()
        with pytest.raises(errors.HostDiskFull):
            await place.provider.warm(Shape("host", 128))
        assert await place.provider.list() == []
        return told.value.message
    finally:
        await place.clear()


async def test_a_create_below_the_reserve_is_refused(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    message = await refused(tmp_path, tmp_path_factory.getbasetemp() / "made", DiskPolicy(reserve_mb=1 << 40))
    assert "PADDOCK_DISK_RESERVE_MB" in message


async def test_a_create_beyond_the_promise_is_refused(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    message = await refused(tmp_path, tmp_path_factory.getbasetemp() / "made", DiskPolicy(overcommit=1e-9))
    assert "PADDOCK_DISK_OVERCOMMIT" in message


@as_root
async def test_a_disk_larger_than_what_is_left_shows_its_share_until_there_is_room(place: Place) -> None:
    storage = await place.provider.storage()
    assert storage is not None
    inside = await place.create(resources=Resources(disk_mb=storage.free_mb - storage.reserve_mb + 4096))
    await place.need(inside.sandbox_id, "disk limit")
    shown = int(await inside.says("df --output=avail -m /workspace | tail -1"))
    assert shown < storage.free_mb - storage.reserve_mb + 1024, "df tells what there really is"
    await inside.says("echo text > /workspace/file")


@as_root
async def test_the_kernel_does_not_fill_the_inode_tables_of_a_new_disk_with_zeros(place: Place) -> None:
    inside = await place.create()
    await place.need(inside.sandbox_id, "disk limit")
    image = str(place.folder(inside.sandbox_id) / "disk.img")
    loops = [path for path in Path("/sys/block").glob("loop*/loop/backing_file") if path.read_text().strip() == image]
    options = [Path("/proc/fs/ext4", path.parts[3], "options").read_text().split() for path in loops]
    assert [("noinit_itable" in each) for each in options] == [True]
