"""After the host went down: sandboxes are found as paused, with their files, and wake with fresh processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.base import ProcessStatus
from paddock.providers.base import MachineState
from paddock.providers.common import disk
from paddock.providers.local.isolation_backend import NamespaceBackend
from tests.local.place import Inside, Place, as_root


async def reboot(place: Place, *sandbox_ids: str) -> None:
    """All processes end without a word, and the next server is another boot's."""
    await place.provider.close()
    for sandbox_id in sandbox_ids:
        await place.end(sandbox_id)
        place.pretend_reboot(sandbox_id)
    place.provider = place.build()
    await place.provider.start()


async def test_sandboxes_are_found_as_paused_with_their_labels(place: Place) -> None:
    inside, other = await place.create(labels={"name": "märchen"}), await place.create()
    await place.provider.pause(other.sandbox_id)
    before = {found.sandbox_id: found for found in await place.provider.list()}
    await reboot(place, inside.sandbox_id, other.sandbox_id)
    after = {found.sandbox_id: found for found in await place.provider.list()}
    assert after.keys() == before.keys()
    for sandbox_id, found in after.items():
        assert found.state is MachineState.PAUSED
        assert (found.reference, found.created_at) == (before[sandbox_id].reference, before[sandbox_id].created_at)
        assert found.labels == before[sandbox_id].labels


async def test_files_and_environment_are_there_and_processes_are_fresh(place: Place) -> None:
    inside = await place.create(env={"FROM_SPEC": "yes"})
    await inside.says("echo kept > file; mkdir d; ln -s file d/link; chmod 640 file; sudo touch /etc/too")
    await inside.start("exec sleep 4711")
    await reboot(place, inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("cat file; readlink d/link; stat -c '%a %U' file; ls /etc/too; echo $FROM_SPEC") == (
        "kept\nfile\n640 user\n/etc/too\nyes"
    )
    assert "4711" not in await again.says("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.RUNNING


async def test_former_processes_are_lost_with_their_output_and_ended_ones_as_they_ended(
    place: Place, inside: Inside
) -> None:
    ended = (await inside.run("seq 1 1000; echo oops >&2; exit 3")).info
    running = await inside.start("echo so far; exec sleep 1000")
    await inside.until(running, b"so far")
    await reboot(place, inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert [one.process_id for one in await again.machine.processes()] == [ended.process_id, running]
    lost = await again.finish(running)
    assert (lost.info.status, lost.code, lost.out) == (ProcessStatus.LOST, None, b"so far\n")
    kept = await again.finish(ended.process_id)
    assert (kept.info.status, kept.code, kept.err) == (ProcessStatus.COMPLETED, 3, b"oops\n")
    assert kept.out == b"".join(b"%d\n" % n for n in range(1, 1001))
    assert await again.says("echo new") == "new"


async def test_it_can_be_deleted_without_being_resumed(place: Place, inside: Inside) -> None:
    await reboot(place, inside.sandbox_id)
    await place.provider.delete(inside.sandbox_id)
    assert await place.provider.list() == []


async def test_a_create_that_is_sent_again_starts_it(place: Place) -> None:
    spec = place.spec()
    await place.provider.create(spec)
    await (await place.inside(spec.sandbox_id)).put("/workspace/kept", "here")
    await reboot(place, spec.sandbox_id)
    found = await place.provider.create(spec)
    assert found.state is MachineState.RUNNING
    assert await (await place.inside(spec.sandbox_id)).get("/workspace/kept") == b"here"


async def test_a_pid_that_somebody_else_has_now_is_not_mistaken_for_the_sandbox(place: Place, inside: Inside) -> None:
    await place.provider.close()
    record = place.record(inside.sandbox_id)
    await place.end(inside.sandbox_id)
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        given = record._to_json()
        given["running"]["pid"] = innocent.pid
        type(record)._from_json(given).save(place.folder(inside.sandbox_id))
        place.provider = place.build()
        await place.provider.start()
        found = await place.provider.inspect(inside.sandbox_id)
        assert found is not None and found.state is MachineState.PAUSED
        await place.provider.delete(inside.sandbox_id)
        assert innocent.poll() is None
        innocent.kill()


@as_root
async def test_a_disk_that_was_cut_off_is_put_right_by_its_journal(place: Place, inside: Inside) -> None:
    await inside.says("echo kept > file && sync; for i in $(seq 200); do echo $i > new-$i; done")
    NamespaceBackend.abandon(place.running(inside.sandbox_id).pid)  # nothing more reaches the image: the power fails
    await reboot(place, inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("cat file; echo more > file && cat file") == "kept\nmore"
    image = place.folder(inside.sandbox_id) / disk.IMAGE
    await place.end(inside.sandbox_id)
    with disk._unused(image):
        checked = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@as_root
async def test_what_a_journal_cannot_put_right_is_repaired(place: Place, inside: Inside) -> None:
    await inside.says("echo kept > file")
    image = place.folder(inside.sandbox_id) / disk.IMAGE
    await reboot(place, inside.sandbox_id)
    with disk._unused(image):
        for wrong in ("set_super_value free_blocks_count 1", "set_super_value state 2"):
            subprocess.run(["debugfs", "-w", "-R", wrong, image], check=True, capture_output=True)
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("cat file") == "kept"


@as_root
async def test_a_disk_beyond_repair_is_refused_and_said_to_be_so_and_can_be_deleted(
    place: Place, inside: Inside
) -> None:
    image = place.folder(inside.sandbox_id) / disk.IMAGE
    await reboot(place, inside.sandbox_id)
    with disk._unused(image), image.open("r+b") as file:
        file.write(b"\0" * (1 << 20))
    with pytest.raises(errors.ProviderRefused, match="damaged"):
        await place.provider.resume(inside.sandbox_id)
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await place.provider.delete(inside.sandbox_id)
    assert not Path(image).exists()


async def test_a_sandbox_that_ends_by_itself_is_started_again_when_it_is_used(place: Place, inside: Inside) -> None:
    await inside.put("/workspace/kept", "here")
    await place.end(inside.sandbox_id)
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    again = await place.inside(inside.sandbox_id)
    assert await again.get("/workspace/kept") == b"here"
    assert place.running(inside.sandbox_id).alive()
