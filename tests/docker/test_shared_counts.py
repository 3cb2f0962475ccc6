"""What the kernel counts by user, over all containers and the host: one container does not take it from the host."""

from __future__ import annotations

import subprocess

import pytest

from paddock.doctor.suite import probe_program
from tests.docker.place import Place

_HAS_SOME = 1
"""What the probe ends with when there is one left for it."""
_MORE_THAN_ALL = 1_000_000


@pytest.mark.parametrize("what", ["signals", "queues"])
async def test_the_host_keeps_some(place: Place, what: str) -> None:
    inside = await place.create()
    await inside.put("/workspace/probe", probe_program().read_bytes())
    await inside.says("chmod 755 /workspace/probe")
    of_host = (str(probe_program()), "run", "allowance-use", what)
    assert subprocess.run(of_host, stdout=subprocess.DEVNULL, check=False).returncode == _HAS_SOME
    holder = await inside.start(f"exec sudo /workspace/probe run allowance-hold {what} {_MORE_THAN_ALL} 60")
    await inside.until(holder, b"holding")
    try:
        assert subprocess.run(of_host, stdout=subprocess.DEVNULL, check=False).returncode == _HAS_SOME
    finally:
        await inside.machine.signal(holder, 9)
