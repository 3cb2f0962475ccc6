"""The judge of late deadlines finds them, and excuses what is to be excused."""

from __future__ import annotations

import math

import pytest

from tests.chaos.timeline import Setting, Span, Uses, overslept, seconds, union, without

ALWAYS = [(0.0, 1000.0)]


def uses(*spans: Span, timeout: int = 20) -> Uses:
    return Uses(list(spans), [Setting(0, 0, timeout)])


def test_spans_are_joined_cut_and_counted() -> None:
    assert union([(5, 6), (1, 3), (2, 4)]) == [(1, 4), (5, 6)]
    assert without([(0, 10)], [(2, 3), (5, 20), (-3, -1)]) == [(0, 2), (3, 5)]
    assert without([(0, 10)], []) == [(0, 10)]
    assert seconds([(0, 2), (8, 20)], 1, 10) == 3


@pytest.mark.parametrize(("until", "late"), [(31, False), (34, True), (60, True)])
def test_a_timeout_that_strikes_long_after_the_last_use_is_late(until: float, late: bool) -> None:
    used = uses((1, 2), (5, 10))
    assert bool(overslept(used, [(0, until)], ALWAYS, slack_s=2)) == late


def test_a_use_that_finds_it_running_long_after_its_end_shows_the_same() -> None:
    assert overslept(uses((1, 10), (60, 61)), [(0, 70)], ALWAYS, slack_s=2)
    assert not overslept(uses((1, 10), (60, 61)), [(0, 31), (60, 70)], ALWAYS, slack_s=2)


def test_time_in_which_no_server_could_do_it_is_excused() -> None:
    assert not overslept(uses((1, 10)), [(0, 60)], [(0, 15), (45, 1000)], slack_s=2)
    assert overslept(uses((1, 10)), [(0, 70)], [(0, 15), (45, 1000)], slack_s=2)


def test_a_timeout_that_may_not_have_been_set_leaves_the_one_before_possible() -> None:
    used = uses((1, 10), timeout=3600)
    used.settings.append(Setting(5, math.inf, 1))
    assert used.longest_timeout(10) == 3600
    used.settings.append(Setting(6, 7, 2))
    assert used.longest_timeout(10) == 2, "the one in doubt may come after it, and is shorter"
    used.settings.append(Setting(8, math.inf, 3600))
    assert used.longest_timeout(10) == 3600
    used.settings.append(Setting(9, 9.5, 1))
    assert used.longest_timeout(10) == 3600, "and may be carried out last"
    assert used.longest_timeout(7.5) == 2
