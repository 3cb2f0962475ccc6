"""The judges of late and of early deadlines find them, and excuse what is to be excused."""

from __future__ import annotations

import math

import pytest

from tests.chaos.timeline import Answered, Setting, Span, Uses, overslept, seconds, underslept, union, without

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


@pytest.mark.parametrize(("at", "early"), [(20, True), (29.5, True), (30, False), (60, False)])
def test_a_timeout_that_strikes_soon_after_an_answered_use_is_early(at: float, early: bool) -> None:
    used = uses(timeout=20)
    used.answered += [Answered(1, 2), Answered(10, 11)]
    assert bool(underslept(used, [at], [], slack_s=0.1)) == early


def test_a_use_that_had_no_answer_yet_when_the_timeout_struck_proves_nothing() -> None:
    used = uses(timeout=20)
    used.answered += [Answered(1, 2), Answered(10, 22)]
    assert not underslept(used, [21.5], [], slack_s=0.1)


def test_what_a_server_that_dies_may_forget_is_no_more_than_half_of_a_timeout() -> None:
    used = uses(timeout=20)
    used.answered.append(Answered(10, 11, share=0.5))
    assert not underslept(used, [20], [], slack_s=0.1)
    assert underslept(used, [19], [], slack_s=0.1)
    assert underslept(used, [29], [(9, 29)], slack_s=0.1), "it did not die"
    assert not underslept(used, [29], [(10.5, 29), (0, 28)], slack_s=0.1)


def test_the_shortest_timeout_that_may_be_in_force_is_what_must_have_passed() -> None:
    used = uses(timeout=3600)
    used.answered.append(Answered(10, 11))
    assert underslept(used, [50], [], slack_s=0.1)
    used.settings.append(Setting(20, math.inf, 30))
    assert not underslept(used, [50], [], slack_s=0.1), "nobody was told whether it was set"
    assert underslept(used, [39], [], slack_s=0.1)
    used.settings.append(Setting(21, 22, 1))
    assert not underslept(used, [25], [], slack_s=0.1), "it came after the use"


def test_a_timeout_that_was_replaced_before_the_use_cannot_be_in_force() -> None:
    used = uses(timeout=1)
    used.settings.append(Setting(5, 6, 3600))
    used.answered.append(Answered(10, 11))
    assert underslept(used, [50], [], slack_s=0.1)
