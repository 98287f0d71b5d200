"""The highest timelines that a process knows of: a server of a lower one is a former primary."""

import pytest

from app.store.postgresql.timelines import UNKNOWN, FormerPrimary, HighestTimelines, Timeline

SYSTEM = 7301


def test_a_lower_timeline_of_the_same_system_is_refused() -> None:
    timelines = HighestTimelines()
    timelines.check(Timeline(SYSTEM, 2))
    with pytest.raises(FormerPrimary):
        timelines.check(Timeline(SYSTEM, 1))
    timelines.check(Timeline(SYSTEM, 2))
    assert timelines.numbers == {SYSTEM: 2}


def test_systems_are_not_compared() -> None:
    timelines = HighestTimelines()
    timelines.check(Timeline(SYSTEM, 5))
    timelines.check(Timeline(SYSTEM + 1, 1))
    timelines.check(UNKNOWN)
    timelines.check(UNKNOWN)


def test_connections_end_when_a_higher_timeline_is_known_and_not_before() -> None:
    timelines = HighestTimelines()
    ends: list[int] = []
    timelines.on_raised = lambda: ends.append(timelines.numbers[SYSTEM])
    for number in (1, 1, 2):
        timelines.check(Timeline(SYSTEM, number))
    timelines.raise_to({SYSTEM: 2, SYSTEM + 1: 9})
    timelines.raise_to({SYSTEM: 4})
    assert ends == [2, 4]
