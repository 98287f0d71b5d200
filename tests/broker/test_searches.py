"""A search knows where to look next: a place along the order of delivery, and the numbers of what came behind it."""

import pytest

from app.broker import searches
from app.broker.filters import CelFilter
from app.broker.looks import Look
from app.broker.search import LEAST_COUNTED, Budget
from app.broker.searches import MOST_NEWS, REVISIT_SECONDS, Search, Searches
from app.domain.delivery import AHEAD_OF_ALL, Place
from app.domain.message import DEFAULT_PRIORITY, LARGEST_PROPERTIES
from app.domain.refusals import RateLimited
from app.domain.weight import ROW_BYTES
from tests.clock import VirtualClock

A, B, C = (CelFilter(f"message.subject == '{subject}'") for subject in "abc")
LINE, OTHER_LINE = 1, 2
LARGEST = ROW_BYTES + LARGEST_PROPERTIES


def place(number: int) -> Place:
    return (-DEFAULT_PRIORITY, 0, number)


# ---- news ------------------------------------------------------------------------------------------------------------


def at(number: int) -> Search:
    """A search that has walked to the place of this message."""
    search = Search(now=0)
    search.advance(AHEAD_OF_ALL, place(number))
    return search


@pytest.mark.parametrize(
    ("came_to", "news"),
    [(place(4), [9]), (place(5), [9]), (place(6), []), (None, [9])],
    ids=["behind the walk", "where it stands", "ahead of it", "in an unknown place"],
)
def test_what_the_walk_has_yet_to_reach_is_no_news(came_to: Place | None, news: list[int]) -> None:
    search = at(5)
    search.note(9, came_to)
    assert search.take_news(10) == news


def test_before_the_walk_begins_a_message_in_an_unknown_place_is_no_news_and_overtakes_none() -> None:
    search = Search(now=0)
    search.note(9, None)
    assert search.take_news(10) == []


def test_all_is_news_during_a_look_which_may_have_missed_it() -> None:
    search = at(5)
    search.looking = 1
    search.note(9, place(6))
    assert search.take_news(10) == [9]


def test_news_are_taken_once_and_the_lowest_numbers_first() -> None:
    search = at(5)
    for number in (3, 1, 2):
        search.note(number, None)
    assert search.take_news(2) == [1, 2]
    assert search.take_news(2) == [3]
    assert search.take_news(2) == []


def test_with_more_news_than_it_remembers_a_search_begins_again() -> None:
    search = at(5)
    for number in range(MOST_NEWS):
        search.note(number, None)
    assert search.walked_to == place(5)
    search.note(MOST_NEWS, None)
    assert search.walked_to == AHEAD_OF_ALL
    assert search.take_news(MOST_NEWS) == []


def test_a_walk_that_was_sent_back_meanwhile_does_not_advance() -> None:
    search = at(5)
    search.advance(place(4), place(6))
    assert search.walked_to == place(5)


# ---- looks -----------------------------------------------------------------------------------------------------------


def test_the_passed_part_is_looked_at_again_once_in_a_while() -> None:
    search = Search(now=10)
    due = 10 + REVISIT_SECONDS
    assert [search.begins_round(now) for now in (10, due, due, due + REVISIT_SECONDS)] == [False, True, False, True]


def test_the_size_of_a_look_follows_the_weight_of_the_messages_before() -> None:
    search = Search(now=0)
    assert search.size_of_look(200, 10 * LARGEST) == 10, "the first one expects the largest properties"
    search.learn(5, 5 * 1000)
    assert search.size_of_look(200, 20_000) == 20
    assert search.size_of_look(15, 20_000) == 15
    assert search.size_of_look(200, 999) == 1, "one is always read"
    search.learn(0, 0)
    assert search.size_of_look(200, 20_000) == 20, "an empty look tells nothing"


@pytest.mark.parametrize(("count", "weight", "is_spent"), [(49, 999, False), (50, 0, True), (0, 1000, True)])
def test_a_call_has_looked_enough_when_messages_or_bytes_are_used_up(count: int, weight: int, is_spent: bool) -> None:
    budget = Budget(deadline=0, messages=50, bytes=1000)
    budget.spend(Look([], count, weight, None))
    assert budget.is_spent is is_spent


def test_a_look_that_reads_nothing_counts_all_the_same() -> None:
    budget = Budget(deadline=0, messages=LEAST_COUNTED, bytes=1)
    budget.spend(Look([], 0, 0, None))
    assert budget.is_spent


# ---- who shares a search ---------------------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """Searches of which two are remembered without a receiver."""
    monkeypatch.setattr(searches, "MOST_IDLE", 2)
    return Searches(VirtualClock(), most_receivers=2)


def visited(shared: Searches, line: int, matching: CelFilter) -> Search:
    """The search that a receiver finds, which leaves at once."""
    with shared.enter(line, matching) as search:
        return search


def test_receivers_are_counted_until_they_leave(shared: Searches) -> None:
    for _ in range(2):
        with shared.enter(LINE, A), shared.enter(LINE, B), pytest.raises(RateLimited), shared.enter(LINE, C):
            pass


def test_a_line_has_receivers_while_one_is_there(shared: Searches) -> None:
    visited(shared, LINE, A)
    assert not shared.has_receivers(LINE)
    with shared.enter(LINE, B):
        with shared.enter(LINE, B):
            assert shared.has_receivers(LINE)
        assert shared.has_receivers(LINE)
        assert not shared.has_receivers(OTHER_LINE)
    assert not shared.has_receivers(LINE)


def test_the_search_that_was_used_longest_ago_is_forgotten_first(shared: Searches) -> None:
    first, second = visited(shared, LINE, A), visited(shared, LINE, B)
    assert visited(shared, LINE, A) is first
    assert visited(shared, LINE, B) is second
    third = visited(shared, OTHER_LINE, A)
    assert visited(shared, LINE, B) is second
    assert visited(shared, OTHER_LINE, A) is third
    assert visited(shared, LINE, A) is not first


def test_a_search_with_a_receiver_is_not_forgotten(shared: Searches) -> None:
    visited(shared, LINE, A)
    with shared.enter(LINE, A) as search:
        for matching in (B, C):
            visited(shared, LINE, matching)
        assert visited(shared, LINE, A) is search


def test_what_comes_to_a_line_is_news_to_each_of_its_searches(shared: Searches) -> None:
    with shared.enter(LINE, A) as one, shared.enter(LINE, B) as other:
        for search in (one, other):
            search.advance(AHEAD_OF_ALL, place(9))
        shared.note(LINE, 7, None)
        shared.note(OTHER_LINE, 8, None)
    assert [search.take_news(10) for search in (one, other)] == [[7], [7]]
