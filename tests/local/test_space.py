"""Room on the host's disk: who gets how much of it, and who is refused. What a full one does is in test_full_disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.base import Resources, Shape
from paddock.providers.local.disk_allocator import DiskPolicy, share, share_with_claims
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
