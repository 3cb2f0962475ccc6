"""Running a command in one call, on any machine: the default, written on the three calls that every machine has."""

from __future__ import annotations

import pytest

from paddock.ids import new_process_id
from paddock.machine.agent import AgentMachine
from paddock.machine.base import Machine, OutputChunk, ProcessInfo, ProcessSpec, ProcessStatus, Stream

SPEC = ProcessSpec("p_1", ["true"])


class Spool(Machine):
    """A process that is over, or not, and a spool that gives a few bytes at a time and has dropped its beginning."""

    def __init__(self, content: bytes, first: int = 0, piece: int = 3, running: bool = False) -> None:
        self._content, self._first, self._piece, self._running = content, first, piece, running
        self.reads: list[tuple[Stream, int]] = []

    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        return self._info(ProcessStatus.RUNNING)

    async def wait(self, process_id: str, timeout: float | None = None) -> ProcessInfo:
        return self._info(ProcessStatus.RUNNING if self._running else ProcessStatus.COMPLETED)

    async def read_output(self, process_id: str, stream: Stream, offset: int = 0, limit: int = 1 << 20) -> OutputChunk:
        self.reads.append((stream, offset))
        if stream is Stream.STDERR:
            return OutputChunk(stream, offset, b"")
        begin = max(offset, self._first)
        return OutputChunk(stream, begin, self._content[begin : begin + min(limit, self._piece)], begin - offset)

    def _info(self, status: ProcessStatus) -> ProcessInfo:
        return ProcessInfo("p_1", status, None, 1, "", 0.0, None, len(self._content), 0, False)


Spool.__abstractmethods__ = frozenset()


async def test_the_pieces_of_the_spool_are_put_together_and_nothing_is_read_in_vain() -> None:
    machine = Spool(b"0123456789")
    info, stdout, stderr = await machine.run(SPEC, 1)
    assert info.status is ProcessStatus.COMPLETED
    assert (stdout, stderr) == (OutputChunk(Stream.STDOUT, 0, b"0123456789"), OutputChunk(Stream.STDERR, 0, b""))
    assert machine.reads == [(Stream.STDOUT, at) for at in (0, 3, 6, 9)]


@pytest.mark.parametrize("limit", [0, 1, 4, 10, 11])
async def test_no_more_than_the_limit_is_given(limit: int) -> None:
    _, stdout, _ = await Spool(b"0123456789").run(SPEC, 1, limit)
    assert stdout.data == b"0123456789"[:limit]


async def test_what_the_spool_has_dropped_is_told_by_the_offset() -> None:
    _, stdout, _ = await Spool(b"0123456789", first=5).run(SPEC, 1)
    assert stdout == OutputChunk(Stream.STDOUT, 5, b"56789", skipped=5)


async def test_what_a_running_process_has_said_so_far_is_given() -> None:
    info, stdout, _ = await Spool(b"01234", running=True).run(SPEC, 1)
    assert info.running
    assert stdout.data == b"01234"


async def test_it_runs_on_a_real_machine(machine: AgentMachine) -> None:
    command = ProcessSpec(new_process_id(), ["sh", "-c", "echo out; echo err >&2; exit 3"], cwd="/", user="root")
    info, stdout, stderr = await Machine.run(machine, command, 20)
    assert (info.exit_code, stdout.data, stderr.data) == (3, b"out\n", b"err\n")
