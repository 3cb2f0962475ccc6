"""Starts a service in a sandbox once, and waits until it is ready.

The process id is derived from the sandbox, the service and the number of the start, and a machine starts no second
process with the same id; so two servers, or one restarted in between, start it only once. Its output is kept like that
of any process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from paddock import errors
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine, ProcessInfo, ProcessSpec, Stream

_MIN_POLL_S = 0.005
_MAX_POLL_S = 0.25
_PROBE_TIMEOUT_S = 5.0
_TAIL_BYTES = 2048
_LABEL = re.compile(r"service (\S+) #(\d{1,9}): ")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-4])\d\d ")


@dataclass(frozen=True, slots=True)
class ServiceLaunch:
    """How to start a service, and how to tell that it is ready."""

    name: str
    port: int
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = WORKSPACE
    user: str = DEFAULT_USER
    ready_path: str | None = None
    """HTTP path that is polled for readiness. None: an open port is enough."""
    ready_timeout: float = 30.0

    @property
    def definition(self) -> str:
        """Identifies the definition: if it changes, a new process is needed."""
        return json.dumps([self.name, self.port, list(self.argv), sorted(self.env.items()), self.cwd, self.user])


class BuiltInService(Protocol):
    """A service that every sandbox has."""

    title: str
    """Display name, as at the beginning of a sentence."""
    port: int

    async def launch(self, machine: Machine) -> ServiceLaunch:
        """Install what the service needs into the sandbox, and return how to start it."""


async def latest(machine: Machine, launch: ServiceLaunch) -> tuple[int, ProcessInfo | None]:
    """Number and process of the latest start; 0 and None before the first. The process id is checked, because any
    process may be given the label."""
    found: tuple[int, ProcessInfo | None] = (0, None)
    for process in await machine.processes():
        label = _LABEL.match(process.label)
        if label is None or label[1] != launch.name:
            continue
        number = int(label[2])
        if number > found[0] and process.process_id == _process_id(machine.sandbox_id, launch, number):
            found = (number, process)
    return found


async def start(machine: Machine, launch: ServiceLaunch) -> tuple[ProcessInfo, bool]:
    """The running process, or a new one; the flag tells whether it is new."""
    number, process = await latest(machine, launch)
    if process is not None and process.running:
        return process, False
    number += 1
    spec = ProcessSpec(
        process_id=_process_id(machine.sandbox_id, launch, number),
        argv=launch.argv,
        cwd=launch.cwd,
        env=launch.env,
        user=launch.user,
        label=f"service {launch.name} #{number}: {' '.join(launch.argv)}"[:1000],
    )
    return await machine.spawn(spec), True


async def until_ready(machine: Machine, launch: ServiceLaunch, process: ProcessInfo) -> None:
    """Return when the service is ready. Raises ``ServiceFailed`` if it ended or the timeout has passed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + launch.ready_timeout
    pause = _MIN_POLL_S
    while not await _answers(machine, launch):
        now = await machine.process(process.process_id)
        if not now.running:
            raise await _failed(machine, launch, now, f"ended with exit code {now.exit_code}")
        if loop.time() + pause > deadline:
            what = (
                f"did not open port {launch.port}"
                if launch.ready_path is None
                else f"did not answer on port {launch.port}"
            )
            raise await _failed(machine, launch, now, f"{what} within {launch.ready_timeout:g} s")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_S)


async def _answers(machine: Machine, launch: ServiceLaunch) -> bool:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            connection = await machine.dial(launch.port)
            try:
                if launch.ready_path is None:
                    return True
                asked = (
                    f"GET {launch.ready_path} HTTP/1.1\r\nHost: localhost:{launch.port}\r\nConnection: close\r\n\r\n"
                )
                await connection.write(asked.encode())
                said = b""
                while len(said) < 16 and (more := await connection.read(1024)):
                    said += more
                return _STATUS.match(said) is not None
            finally:
                await connection.close()
    except (errors.Conflict, TimeoutError):  # the port is closed, or nothing answers
        return False


async def _failed(machine: Machine, launch: ServiceLaunch, process: ProcessInfo, what: str) -> errors.ServiceFailed:
    said = "\n".join([text for stream in Stream if (text := await _last(machine, process, stream))])
    return errors.ServiceFailed(
        f"The service {launch.name!r} {what}." + (f" Its last output: {said}" if said else " It said nothing."),
        details={"name": launch.name, "port": launch.port, "process_id": process.process_id},
    )


async def _last(machine: Machine, process: ProcessInfo, stream: Stream) -> str:
    """The last lines of this output stream."""
    size = process.stdout_size if stream is Stream.STDOUT else process.stderr_size
    with suppress(errors.ProcessNotFound):
        chunk = await machine.read_output(process.process_id, stream, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
        return "\n".join(chunk.data.decode(errors="replace").strip().splitlines()[-10:])
    return ""


def _process_id(sandbox_id: str, launch: ServiceLaunch, number: int) -> str:
    named = f"service\n{sandbox_id}\n{launch.definition}\n{number}"
    return "p_" + hashlib.sha256(named.encode()).hexdigest()[:16]
