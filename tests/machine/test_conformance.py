"""What every machine promises, promised by the agent's on the event loop that servers use, without a leak.

Not among them is what the provider has to do: limits of the machine, its network, what it shows of the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.machine.agent import AgentMachine
from paddock.providers.local import LocalProvider
from tests.conformance.conftest import Installation, machine, provider, shell, spec
from tests.conformance.shell import Shell
from tests.conformance.test_commands import *  # noqa: F403
from tests.conformance.test_confinement import *  # noqa: F403
from tests.conformance.test_files import *  # noqa: F403
from tests.conformance.test_output import *  # noqa: F403
from tests.conformance.test_ports import *  # noqa: F403
from tests.conformance.test_signals import *  # noqa: F403
from tests.conformance.test_terminal import *  # noqa: F403
from tests.conformance.test_watch import *  # noqa: F403
from tests.support import local_home
from tests.support.waiting import PATIENCE_S

__all__ = ["machine", "provider", "shell", "spec"]

_LEFT_OUT = {
    "test_usage_is_zero_before_and_real_after": "the limits are the provider's",
    "test_the_system_cannot_be_written_to": "here /dev is the user's own",
}
for _name in _LEFT_OUT:
    del globals()[_name]


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    root = local_home.lay_out(tmp_path)
    made = Installation(lambda: LocalProvider(root))
    await made.provider.start()
    yield made
    await local_home.delete_all(made.provider)
    await made.provider.close()


async def test_everything_inside_can_be_stopped_and_goes_on(shell: Shell) -> None:
    inside = shell.machine
    assert isinstance(inside, AgentMachine)
    ticking = await shell.start("while :; do echo tick; sleep 0.01; done")
    await shell.until(ticking, b"tick\n" * 3)
    assert await inside.stop_all() >= 1
    sizes = {(await inside.process(ticking)).stdout_size for _ in range(2)}
    await asyncio.sleep(0.2)
    sizes.add((await inside.process(ticking)).stdout_size)
    assert len(sizes) == 1
    assert await inside.continue_all() >= 1
    async with asyncio.timeout(PATIENCE_S):
        while (await inside.process(ticking)).stdout_size in sizes:
            await asyncio.sleep(0.01)
