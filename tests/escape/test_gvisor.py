"""The catalogue against a guest of gVisor's: nothing gets out of it; what is not refused concerns the guest alone."""

from __future__ import annotations

import pytest

from paddock.doctor.attempts import Outcome, Verdict, cases
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import attack, file_cases
from paddock.doctor.suite import opened
from paddock.providers.base import IsolationLevel
from tests.local import gvisor

OF_THE_GUEST = {
    "agent-memory-layout": "gVisor shows it to everybody inside",
    "agent-environment": "gVisor shows it to everybody inside; there is nothing but a PATH in it",
    "agent-descriptors": "gVisor lets them be followed; who has sudo can do as much",
    "agent-oom-score": "for root; the guest's kernel keeps the number and kills nobody by it",
    "agent-settings": "for root; files that the guest's kernel keeps and does nothing with",
    "users-own": "a guest needs no ids of its own inside: those outside are the sandbox's own range",
    "users-foreign-ids": "likewise",
    "filter-changed-call": "a tracer may do what its own program may not; behind both stands the guest's kernel",
    "cgroup-tree": "control groups of the guest's kernel; the host's are around it",
    "device-fuse": "the guest's kernel has such a device itself",
    "device-tunnel": "the guest's kernel has such a device itself, and no network behind it",
    "device-permissions": "the guest's own device file",
    "proc-sysrq": "the guest's kernel has it and does nothing",
    "proc-memory-settings": "settings of the guest's kernel",
    "proc-kernel-settings": "settings of the guest's kernel",
    "proc-network-settings": "settings of the guest's kernel",
    "priority-real-time": "the guest's own scheduler",
    "priority-raise": "the guest's own scheduler",
    "oom-immunity": "among processes of the guest only",
    "socket-mark": "on the guest's own network",
    "socket-transparent": "on the guest's own network",
    "network-interface-flags": "the guest's own loopback",
    "file-api-agent-inside": "the agent's program, which is no secret",
    "file-api-agent-descriptors": "for root, who can do as much",
}
"""What is not refused there, and why that is no way out."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_nothing_of_the_catalogue_gets_out_of_a_guest() -> None:
    wanted = gvisor.wanted()
    outcomes: list[tuple[str, Outcome]] = []
    async with opened(IsolationLevel.HARDENED, wanted) as suite:
        assert (await suite.isolation()).level is IsolationLevel.HARDENED
        for case in cases(GROUPS):
            outcomes.append((case.attempt.name, await suite.run(case)))
        box = await suite.new_box()
        for name, user in file_cases():
            outcomes.append((name, await attack(suite, box, name, user)))
    refused = sum(outcome.verdict is Verdict.REFUSED for _, outcome in outcomes)
    through = [
        (name, outcome.user, outcome.detail)
        for name, outcome in outcomes
        if outcome.verdict is Verdict.NOT_REFUSED and name not in OF_THE_GUEST
    ]
    assert through == []
    assert refused > 300
