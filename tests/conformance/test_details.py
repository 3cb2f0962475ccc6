"""What surfaces that imitate other platforms need of every machine: notes, the last byte, owners, attributes, acts."""

from __future__ import annotations

import asyncio
import signal

import pytest

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import (
    MAX_NOTE,
    FileAct,
    FileType,
    OutputChunk,
    ProcessInfo,
    ProcessSpec,
    ProcessStatus,
)
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell, chunks
from tests.support.waiting import PATIENCE_S

HOLDING = "echo first; (sleep 0.6; echo last) & exit 3"
"""Ends at once, and leaves a child behind that writes later."""


def spec(script: str, **more: object) -> ProcessSpec:
    return ProcessSpec(new_process_id(), ["/bin/sh", "-c", script], **more)  # type: ignore[arg-type]


async def whole(shell: Shell, asked: ProcessSpec) -> tuple[ProcessInfo, bytes, ProcessInfo]:
    async with asyncio.timeout(PATIENCE_S):
        items = [item async for item in shell.machine.begin(asked)]
    first, last = items[0], items[-1]
    assert isinstance(first, ProcessInfo) and isinstance(last, ProcessInfo)
    return first, b"".join(item.data for item in items[1:-1] if isinstance(item, OutputChunk)), last


# Beginning and following


async def test_a_process_is_begun_and_followed_in_one_call(shell: Shell) -> None:
    first, data, last = await whole(shell, spec("echo out; echo err >&2; exit 4"))
    assert first.pid is not None
    assert sorted(data.split()) == [b"err", b"out"]
    assert (last.status, last.exit_code) == (ProcessStatus.COMPLETED, 4)


async def test_a_lingering_follower_waits_for_the_last_byte_of_children(shell: Shell) -> None:
    _, data, last = await whole(shell, spec(HOLDING))
    assert data == b"first\nlast\n"
    assert last.exit_code == 3


async def test_an_ordinary_follower_does_not_wait_for_children(shell: Shell) -> None:
    process_id = await shell.start(HOLDING)
    async with asyncio.timeout(PATIENCE_S):
        data = b"".join([chunk.data async for chunk in shell.machine.follow(process_id)])
    assert data == b"first\n"


async def test_whoever_comes_later_lingers_too(shell: Shell) -> None:
    process_id = await shell.start(HOLDING)
    await shell.machine.wait(process_id, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        data = b"".join([chunk.data async for chunk in shell.machine.follow(process_id, 6, 0, linger=True)])
    assert data == b"last\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_nobody_lingers_after_a_signal_that_ends_it(shell: Shell, number: int) -> None:
    asked = spec("sleep 1000 & echo ready; exec sleep 1000")
    stream = shell.machine.begin(asked)
    async with asyncio.timeout(PATIENCE_S):
        assert isinstance(await anext(stream), ProcessInfo)
        assert isinstance(await anext(stream), OutputChunk)
        await shell.machine.signal(asked.process_id, number, group=False)
        last = [item async for item in stream][-1]
    assert isinstance(last, ProcessInfo)
    assert (last.status, last.exit_code) == (ProcessStatus.KILLED, 128 + number)


async def test_nobody_lingers_after_a_hard_timeout(shell: Shell) -> None:
    _, _, last = await whole(shell, spec("setsid sleep 1000 & exec sleep 1000", hard_timeout=0.5))
    assert last.status is ProcessStatus.TIMED_OUT


async def test_a_signal_lets_those_go_who_wait_for_children_only(shell: Shell) -> None:
    asked = spec("sleep 1000 & exit 0")
    stream = shell.machine.begin(asked)
    async with asyncio.timeout(PATIENCE_S):
        await anext(stream)
        await shell.machine.wait(asked.process_id, PATIENCE_S)
        await shell.machine.signal(asked.process_id, signal.SIGKILL, group=False)
        last = [item async for item in stream][-1]
    assert isinstance(last, ProcessInfo)
    assert last.exit_code == 0


async def test_who_stops_listening_does_not_end_the_process(shell: Shell) -> None:
    asked = spec("echo ready; sleep 0.3; echo done > /workspace/done")
    stream = shell.machine.begin(asked)
    async with asyncio.timeout(PATIENCE_S):
        await anext(stream)
        await stream.aclose()
    assert (await shell.finish(asked.process_id)).code == 0
    assert await shell.get("/workspace/done") == b"done\n"


async def test_much_output_comes_whole_to_a_slow_listener(shell: Shell) -> None:
    size = 0
    async with asyncio.timeout(PATIENCE_S):
        async for item in shell.machine.begin(spec("head -c 6000000 /dev/zero")):
            if isinstance(item, OutputChunk):
                assert item.offset == size
                size = item.end
                await asyncio.sleep(0.001)
    assert size == 6_000_000


async def test_a_signal_to_the_process_alone_leaves_its_children(shell: Shell) -> None:
    process_id = await shell.start("sleep 1000 & echo $! > /workspace/child; echo ready; wait")
    await shell.until(process_id, b"ready")
    await shell.machine.signal(process_id, signal.SIGKILL, group=False)
    assert (await shell.machine.wait(process_id, PATIENCE_S)).exit_code == 137
    assert (await shell.run("kill -0 $(cat /workspace/child)")).code == 0


# Notes and refusals


async def test_a_note_is_found_again_also_by_a_new_server(shell: Shell, installation: Installation) -> None:
    note = bytes(range(256)) * 200
    noted, plain = spec("sleep 1000", note=note), spec("exit 0")
    await shell.machine.spawn(noted)
    await shell.machine.spawn(plain)
    await shell.machine.wait(plain.process_id, PATIENCE_S)
    assert await shell.machine.note(noted.process_id) == note
    assert await shell.machine.note(plain.process_id) == b""
    provider = await installation.restart()
    machine = await provider.attach(shell.machine.sandbox_id)
    assert await machine.note(noted.process_id) == note
    await machine.signal(noted.process_id, signal.SIGKILL)
    await machine.wait(noted.process_id, PATIENCE_S)
    assert await machine.note(noted.process_id) == note


async def test_there_is_no_note_of_a_process_that_does_not_exist(shell: Shell) -> None:
    with pytest.raises(errors.ProcessNotFound):
        await shell.machine.note(new_process_id())


async def test_the_longest_note_fits(shell: Shell) -> None:
    asked = spec("exit 0", note=b"n" * MAX_NOTE)
    await shell.machine.spawn(asked)
    assert await shell.machine.note(asked.process_id) == b"n" * MAX_NOTE


async def test_a_missing_program_is_refused_when_strictness_is_asked_for(shell: Shell) -> None:
    for program in ("/usr/bin/no-such-program", "no-such-program", "/etc/passwd"):
        asked = ProcessSpec(new_process_id(), [program], strict=True)
        with pytest.raises(errors.Invalid):
            await shell.machine.spawn(asked)
        with pytest.raises(errors.ProcessNotFound):
            await shell.machine.process(asked.process_id)
    for program in ("/bin/sh", "sh"):
        await shell.machine.spawn(ProcessSpec(new_process_id(), [program, "-c", "exit 0"], strict=True))


# Files


async def test_a_path_is_resolved_to_the_end(shell: Shell) -> None:
    await shell.run(
        "mkdir -p real/deep; echo x > real/deep/file; ln -s real one; ln -s one/deep/file two; ln -s no gone"
    )
    found = await shell.machine.resolve("/workspace/two")
    assert (found.path, found.name, found.type) == ("/workspace/real/deep/file", "file", FileType.FILE)
    assert (await shell.machine.resolve("/workspace/one")).type is FileType.DIRECTORY
    assert (await shell.machine.resolve("/workspace")).path == "/workspace"
    for missing in ("/workspace/gone", "/workspace/missing"):
        with pytest.raises(errors.PathNotFound):
            await shell.machine.resolve(missing)


@pytest.mark.parametrize("atomic", [True, False])
async def test_attributes_are_pinned_to_a_file_and_replaced_as_a_whole(shell: Shell, atomic: bool) -> None:
    async def write(attributes: dict[str, str] | None) -> dict[str, str]:
        await shell.machine.write_file("/workspace/file", chunks(b"x"), atomic=atomic, attributes=attributes)
        return (await shell.machine.attributes(["/workspace/file"]))[0]

    assert await write({"author": "Zoë", "kind": "note"}) == {"author": "Zoë", "kind": "note"}
    assert await write({"author": "Bo"}) == {"author": "Bo"}
    assert await write({}) == {}


async def test_attributes_of_many_are_told_in_order(shell: Shell) -> None:
    paths = [f"/workspace/{n}" for n in range(300)]
    for path in paths[::100]:
        await shell.machine.write_file(path, chunks(b"x"), attributes={"path": path})
    found = await shell.machine.attributes([*paths, "/workspace", "/workspace/missing"])
    assert [at for at, pinned in enumerate(found) if pinned] == [0, 100, 200]
    assert found[100] == {"path": "/workspace/100"}
    assert await shell.machine.attributes([]) == []


async def test_root_writes_for_another(shell: Shell) -> None:
    written = await shell.machine.write_file(
        "/workspace/a/b/file", chunks(b"x"), user="root", owner="user", atomic=False
    )
    assert (written.owner, written.mode) == ("user", 0o644)
    assert await shell.machine.make_directory("/workspace/c/d", user="root", owner="user")
    for path in ("/workspace/a", "/workspace/a/b", "/workspace/a/b/file", "/workspace/c", "/workspace/c/d"):
        assert (await shell.machine.stat(path)).owner == "user"
    assert (await shell.run("echo more >> a/b/file; touch a/new c/d/new; rm -r a c")).code == 0
    with pytest.raises(errors.Invalid):
        await shell.machine.make_directory("/workspace/e", user="root", owner="nobody-here")


async def test_an_empty_file_may_be_written_in_place_again(shell: Shell) -> None:
    for content in (b"", b"long content", b"short", b""):
        await shell.put("/workspace/file", content, atomic=False)
        assert await shell.get("/workspace/file") == content


# Watching


async def test_a_fresh_file_written_in_place_is_created_given_and_written(shell: Shell) -> None:
    async with shell.machine.watch("/workspace") as watch:
        await shell.machine.write_file("/workspace/file", chunks(b"x"), user="root", owner="user", atomic=False)
        seen = await watch.settled()
    assert [(event.path, event.done) for event in seen] == [
        ("/workspace/file", FileAct.CREATE),
        ("/workspace/file", FileAct.CHMOD),
        ("/workspace/file", FileAct.WRITE),
    ]


async def test_every_act_is_told_apart(shell: Shell) -> None:
    await shell.put("/workspace/old", "x")
    await shell.put("/workspace/other", "x")
    async with shell.machine.watch("/workspace") as watch:
        await shell.run("mv old new; chmod 600 new; echo y >> new; mv other new; rm new")
        seen = [(event.path.removeprefix("/workspace/"), event.done) for event in await watch.settled()]
    assert seen == [
        ("old", FileAct.RENAME),
        ("new", FileAct.CREATE),
        ("new", FileAct.CHMOD),
        ("new", FileAct.WRITE),
        ("other", FileAct.RENAME),
        ("new", FileAct.CREATE),
        ("new", FileAct.REMOVE),
    ]


async def test_what_was_done_before_is_settled_every_time(shell: Shell) -> None:
    async with shell.machine.watch("/workspace", recursive=True) as watch:
        for n in range(50):
            await shell.put(f"/workspace/{n}", "x")
            assert f"/workspace/{n}" in {event.path for event in await watch.settled()}
        assert await watch.settled() == []
