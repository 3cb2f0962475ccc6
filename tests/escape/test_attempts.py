"""Every attempt of the catalogue, as the sandbox's user and as its root, is refused by sandboxes of every kind."""

from __future__ import annotations

import pytest

from paddock.doctor.attempts import AttemptOutcome, Case, Verdict, cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS, Bomb, exhaust, run_bomb
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import attack, file_cases
from paddock.doctor.kinds import SandboxKind
from paddock.doctor.suite import Suite, TestSandbox
from tests.escape.kinds import EVERY

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", EVERY, indirect=True, scope="session"),
]


def hold(outcome: AttemptOutcome) -> None:
    if outcome.verdict is Verdict.NOT_TRIED:
        pytest.skip(outcome.detail)
    assert outcome.verdict in (Verdict.REFUSED, Verdict.DOCUMENTED), outcome.detail


async def test_sandboxes_are_of_the_kind_that_is_tried(suite: Suite, kind: SandboxKind) -> None:
    report = await suite.isolation()
    assert suite.provider.name == kind.name
    assert kind.level in (None, report.level)


@pytest.mark.parametrize("case", list(cases(GROUPS)), ids=lambda case: case.name)
async def test_a_sandbox_refuses(suite: Suite, case: Case) -> None:
    hold(await suite.run(case))


@pytest.mark.parametrize(("name", "user"), file_cases())
async def test_the_file_api_is_not_led_astray(suite: Suite, box: TestSandbox, name: str, user: str) -> None:
    hold(await attack(suite, box, name, user))


@pytest.mark.slow
@pytest.mark.parametrize("bomb", ALLOWANCES, ids=lambda bomb: bomb.name)
async def test_one_sandbox_cannot_take_what_others_need(suite: Suite, box: TestSandbox, bomb: Bomb) -> None:
    hold(await exhaust(suite, box, bomb))


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
async def test_a_bomb_leaves_the_host_and_others_responsive(suite: Suite, box: TestSandbox, bomb: Bomb) -> None:
    hold(await run_bomb(suite, box, bomb))
