"""SIGKILL between any two steps of create, pause, resume, delete and timeout; restart; nothing is lost.

The servers are real processes on a real database and they die for real, with other faults among the kills. What
survives is judged from outside: by what was promised and answered to clients, by the rows, and by what the provider has
on disk. Deadlines strike neither early nor late, what ran is billed, disks can be written, SQLite's log stays small.
"""

from __future__ import annotations

import pytest

from tests.chaos import server
from tests.chaos.judge import judge, judge_crashes, judge_disks, judge_log, judge_streams, judge_usage
from tests.chaos.scene import Scene
from tests.chaos.shares import TOTAL

_ENOUGH_FOR_EVERY_STEP = 250

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 6 * TOTAL)]


async def test_no_kill_between_any_two_steps_loses_orphans_or_forgets(chaos: Scene, kills: int) -> None:
    await chaos.first_sandbox()
    await chaos.rampage(kills)
    for step in server.PROVIDER_STEPS if chaos.places.total() >= _ENOUGH_FOR_EVERY_STEP else ():
        assert any(step in place for place in chaos.places), f"no server died around {step}: more kills are needed"
    await chaos.start_all()
    await chaos.calm()
    async with chaos.client() as client:
        await chaos.verdict("output", judge_streams(chaos, client))
        await chaos.verdict("crashes told", judge_crashes(chaos, client))
        await chaos.herd.ask_again(client)
        await chaos.verdict("rows, machines, histories, deadlines", judge(chaos))
        await chaos.verdict("usage, events, bills", judge_usage(chaos, client))
        await chaos.verdict("disks", judge_disks(chaos, client))
        await chaos.verdict("write-ahead log", judge_log(chaos))
