"""Output: every byte, from any offset, bounded, by anyone."""

from __future__ import annotations

import asyncio

import pytest

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import Machine, OutputChunk, Stream
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


async def follow(machine: Machine, process_id: str, **offsets: int) -> list[OutputChunk]:
    async with asyncio.timeout(PATIENCE_S * 2):
        return [chunk async for chunk in machine.follow(process_id, **offsets)]


def joined(given: list[OutputChunk], stream: Stream) -> bytes:
    return b"".join(chunk.data for chunk in given if chunk.stream is stream)


async def test_five_megabytes_are_complete_byte_for_byte(shell: Shell) -> None:
    process = await shell.start("seq -f %07.0f 1 655360; seq -f %07.0f 1 1000 >&2")
    given = await follow(shell.machine, process)
    expected = b"".join(b"%07d\n" % n for n in range(1, 655361))
    assert joined(given, Stream.STDOUT) == expected
    assert joined(given, Stream.STDERR) == expected[:8000]
    assert await shell.read(process) == expected
    assert (await shell.machine.process(process)).stdout_size == len(expected)


async def test_following_gives_output_as_it_comes(shell: Shell) -> None:
    process = await shell.start("echo first; read x; echo second", stdin=True)
    given = []
    async with asyncio.timeout(PATIENCE_S):
        async for chunk in shell.machine.follow(process):
            given.append(chunk.data)
            if len(given) == 1:
                await shell.machine.write_stdin(process, b"\n")
    assert given == [b"first\n", b"second\n"]


async def test_following_one_that_has_ended_gives_everything_and_ends(shell: Shell) -> None:
    process = (await shell.run("echo out; echo err >&2")).info.process_id
    given = await follow(shell.machine, process)
    assert joined(given, Stream.STDOUT) == b"out\n"
    assert joined(given, Stream.STDERR) == b"err\n"


async def test_following_from_offsets_gives_the_rest(shell: Shell) -> None:
    process = (await shell.run("printf 0123456789; printf abcdef >&2")).info.process_id
    given = await follow(shell.machine, process, stdout_offset=4, stderr_offset=6)
    assert given == [OutputChunk(Stream.STDOUT, 4, b"456789")]


async def test_the_last_words_before_the_end_are_never_missed(shell: Shell) -> None:
    async def last_words(n: int) -> bytes:
        return joined(await follow(shell.machine, await shell.start(f"echo start; echo end {n}")), Stream.STDOUT)

    given = await asyncio.gather(*(last_words(n) for n in range(20)))
    assert given == [b"start\nend %d\n" % n for n in range(20)]


async def test_several_followers_each_get_everything(shell: Shell) -> None:
    process = await shell.start("for i in 1 2 3 4 5; do echo $i; sleep 0.01; done")
    given = await asyncio.gather(*(follow(shell.machine, process) for _ in range(4)))
    assert {joined(one, Stream.STDOUT) for one in given} == {b"1\n2\n3\n4\n5\n"}


async def test_reading_by_offset_and_limit(shell: Shell) -> None:
    process = (await shell.run("printf 0123456789")).info.process_id
    read = shell.machine.read_output
    assert await read(process, Stream.STDOUT, 3, 4) == OutputChunk(Stream.STDOUT, 3, b"3456")
    assert (await read(process, Stream.STDOUT, 10)).data == b""
    assert (await read(process, Stream.STDOUT, 99)).data == b""
    assert (await read(process, Stream.STDERR)).data == b""
    with pytest.raises(errors.Invalid):
        await read(process, Stream.STDOUT, -1)
    with pytest.raises(errors.ProcessNotFound):
        await read(new_process_id(), Stream.STDOUT)


async def test_bytes_that_are_no_text_come_through(shell: Shell) -> None:
    ran = await shell.run(r"printf '\000\377\376\r\n\033[0m\200'")
    assert ran.out == b"\x00\xff\xfe\r\n\x1b[0m\x80"


async def test_a_full_spool_drops_the_oldest_and_offsets_stay_true(shell: Shell) -> None:
    lines = 3_500_000
    process = await shell.start(f"seq -f %07.0f 1 {lines}")
    info = await shell.machine.wait(process, 60)
    assert info.exit_code == 0
    assert info.stdout_size == lines * 8
    first = await shell.machine.read_output(process, Stream.STDOUT, 0, 4096)
    assert 0 < first.offset < info.stdout_size
    await _check_lines(first)
    held = info.stdout_size - first.offset
    assert 1 << 20 <= held <= 20 << 20, "bounded, but not stingy"
    last = await shell.machine.read_output(process, Stream.STDOUT, info.stdout_size - 16)
    assert last.data == b"%07d\n%07d\n" % (lines - 1, lines)
    followed = await follow(shell.machine, process, stdout_offset=0)
    assert followed[0].offset == first.offset
    assert sum(len(chunk.data) for chunk in followed) == held


async def _check_lines(chunk: OutputChunk) -> None:
    start = -chunk.offset % 8
    number = (chunk.offset + start) // 8 + 1
    assert chunk.data[start : start + 8] == b"%07d\n" % number
