"""Sandboxes whose home was removed end themselves, also when no server runs; those whose home is there never do."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.providers.base import Shape
from paddock.providers.common.record import RECORD, RunningProcess
from paddock.providers.local.home_watcher import SOCKET
from tests.local import traces
from tests.local.place import Place, rm_rf
from tests.support.waiting import until


@pytest.fixture
async def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One whose home may be gone at the end."""
    made = Place(tmp_path / "home", tmp_path_factory.getbasetemp() / "made")
    await made.provider.start()
    yield made
    if made.root.exists():
        await made.restart()
        await made.clear()
    await until(lambda: not watchers(made))


def watchers(place: Place) -> list[int]:
    words, found = f"paddock-launch\0watch\0{place.root}\0".encode(), []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cmdline").read_bytes() == words:
                found.append(int(process.name))
        except OSError:  # it has ended
            continue
    return found


async def gone(place: Place, *ran: RunningProcess) -> None:
    """All of them, and what the host gave them."""
    await until(lambda: not any(running.alive() for running in ran))
    await until(lambda: not traces._loops(place.root) and not traces._claims(place.root))
    groups = {path for running in ran if running.group is not None for path in running.group.paths()}
    await until(lambda: not any(path.parent.exists() for path in groups))


async def test_they_end_without_a_server_running_paused_and_warm(place: Place) -> None:
    running, paused = await place.create(), await place.create()
    await running.says("nohup sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 &", user="root")
    await place.provider.warm(Shape("host", 128))
    ran = [place.running(running.sandbox_id), place.running(paused.sandbox_id)]
    [warm] = [record.running for _, record in place.provider._dirs.warm()]
    assert warm is not None
    await place.provider.pause(paused.sandbox_id)
    await place.provider.close()
    rm_rf(place.home)
    await gone(place, *ran, warm)


async def test_one_is_enough_for_a_home_and_is_found_again(place: Place) -> None:
    inside = await place.create()
    first = watchers(place)
    assert len(first) == 1
    await place.restart()
    await place.create()
    assert watchers(place) == first
    ran = place.running(inside.sandbox_id)
    os.kill(first[0], signal.SIGKILL)  # by whoever cleans up the machine
    await until(lambda: bool(watchers(place)) and watchers(place) != first)
    await place.provider.close()
    rm_rf(place.folder(inside.sandbox_id))
    await until(lambda: not ran.alive())
    await place.provider.start()


async def test_a_home_that_is_elsewhere_for_a_while_is_not_gone(place: Place, tmp_path: Path) -> None:
    """Neither a rename nor records that cannot be read say that somebody removed it."""
    inside, removed = await place.create(), await place.create()
    ran, ends = place.running(inside.sandbox_id), place.running(removed.sandbox_id)
    await place.provider.close()
    place.home.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "local" / "sandboxes"
    (moved / inside.sandbox_id).chmod(0)
    rm_rf(moved / removed.sandbox_id)
    await until(lambda: not ends.alive())  # which has taken several looks
    assert ran.alive()
    (moved / inside.sandbox_id).chmod(0o700)
    (tmp_path / "elsewhere").rename(place.home)
    await place.provider.start()
    assert await (await place.inside(inside.sandbox_id)).says("echo here") == "here"


async def test_what_is_left_of_a_folder_without_its_record_is_gone(place: Place) -> None:
    """As when a sandbox writes while its folder is being removed, so that the directory stays."""
    inside, other = await place.create(), await place.create()
    ran = place.running(inside.sandbox_id)
    await place.provider.close()
    (place.folder(inside.sandbox_id) / RECORD).unlink()
    await until(lambda: not ran.alive())
    assert place.running(other.sandbox_id).alive()
    rm_rf(place.folder(inside.sandbox_id))
    await place.provider.start()


async def test_a_claim_that_is_somebody_elses_by_now_stays(place: Place) -> None:
    inside = await place.create()
    ran = place.running(inside.sandbox_id)
    if ran.uid_slot is None:
        pytest.skip("an ordinary user has no ranges of ids to claim")
    claim = Path(f"/run/paddock/uids/{ran.uid_slot}")
    await place.provider.close()
    claim.write_text("/somewhere/else")
    try:
        rm_rf(place.home)
        await gone(place, replace(ran, uid_slot=None))
        assert claim.read_text() == "/somewhere/else"
    finally:
        claim.unlink()


async def test_nobody_watches_where_there_is_nothing_to_watch(place: Place) -> None:
    inside = await place.create()
    await place.provider.delete(inside.sandbox_id)
    await place.provider.close()
    await until(lambda: not watchers(place))
    assert (place.root / SOCKET).exists()
    await place.provider.start()
    assert len(watchers(place)) == 1
