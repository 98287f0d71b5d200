"""A search knows where to look next: a place along the order of delivery, and the numbers of what came behind it."""

import pytest

from app.broker import search_state
from app.broker.filtered_read import FilteredBatch
from app.broker.filters import CelFilter
from app.broker.receive_filtered import MIN_COUNTED_MESSAGES, SearchBudget
from app.broker.search_state import MAX_MISSED, RESCAN_SECONDS, SearchRegistry, SearchState
from app.domain.delivery import START_POSITION, DeliveryPosition
from app.domain.message import DEFAULT_PRIORITY, MAX_PROPERTIES_BYTES
from app.domain.refusals import RateLimited
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.virtual_clock import VirtualClock

A, B, C = (CelFilter(f"message.subject == '{subject}'") for subject in "abc")
WAIT_KEY, OTHER_WAIT_KEY = 1, 2
MAX_METADATA_BYTES = MESSAGE_OVERHEAD_BYTES + MAX_PROPERTIES_BYTES


def position(number: int) -> DeliveryPosition:
    return (-DEFAULT_PRIORITY, 0, number)


# ---- news ------------------------------------------------------------------------------------------------------------


def search_at(number: int) -> SearchState:
    """A search that has walked to the place of this message."""
    search = SearchState(now=0)
    search.advance(START_POSITION, position(number))
    return search


@pytest.mark.parametrize(
    ("came_to", "news"),
    [(position(4), [9]), (position(5), [9]), (position(6), []), (None, [9])],
    ids=["behind the walk", "where it stands", "ahead of it", "in an unknown place"],
)
def test_what_the_walk_has_yet_to_reach_is_no_news(came_to: DeliveryPosition | None, news: list[int]) -> None:
    search = search_at(5)
    search.note_receivable(9, came_to)
    assert search.take_missed(10) == news


def test_before_the_walk_begins_a_message_in_an_unknown_place_is_no_news_and_overtakes_none() -> None:
    search = SearchState(now=0)
    search.note_receivable(9, None)
    assert search.take_missed(10) == []


def test_all_is_news_during_a_look_which_may_have_missed_it() -> None:
    search = search_at(5)
    search.active_scans = 1
    search.note_receivable(9, position(6))
    assert search.take_missed(10) == [9]


def test_news_are_taken_once_and_the_lowest_numbers_first() -> None:
    search = search_at(5)
    for number in (3, 1, 2):
        search.note_receivable(number, None)
    assert search.take_missed(2) == [1, 2]
    assert search.take_missed(2) == [3]
    assert search.take_missed(2) == []


def test_with_more_news_than_it_remembers_a_search_begins_again() -> None:
    search = search_at(5)
    for number in range(MAX_MISSED):
        search.note_receivable(number, None)
    assert search.position == position(5)
    search.note_receivable(MAX_MISSED, None)
    assert search.position == START_POSITION
    assert search.take_missed(MAX_MISSED) == []


def test_a_walk_that_was_sent_back_meanwhile_does_not_advance() -> None:
    search = search_at(5)
    search.advance(position(4), position(6))
    assert search.position == position(5)


# ---- looks -----------------------------------------------------------------------------------------------------------


def test_the_passed_part_is_looked_at_again_once_in_a_while() -> None:
    search = SearchState(now=10)
    due = 10 + RESCAN_SECONDS
    assert [search.start_rescan(now) for now in (10, due, due, due + RESCAN_SECONDS)] == [False, True, False, True]


def test_the_size_of_a_look_follows_the_weight_of_the_messages_before() -> None:
    search = SearchState(now=0)
    assert search.batch_size(200, 10 * MAX_METADATA_BYTES) == 10, "the first one expects the largest properties"
    search.record_batch(5, 5 * 1000)
    assert search.batch_size(200, 20_000) == 20
    assert search.batch_size(15, 20_000) == 15
    assert search.batch_size(200, 999) == 1, "one is always read"
    search.record_batch(0, 0)
    assert search.batch_size(200, 20_000) == 20, "an empty look tells nothing"


@pytest.mark.parametrize(("count", "weight", "is_spent"), [(49, 999, False), (50, 0, True), (0, 1000, True)])
def test_a_call_has_looked_enough_when_messages_or_bytes_are_used_up(count: int, weight: int, is_spent: bool) -> None:
    budget = SearchBudget(deadline=0, messages=50, bytes=1000)
    budget.spend(FilteredBatch([], count, weight, None))
    assert budget.is_spent is is_spent


def test_a_look_that_reads_nothing_counts_all_the_same() -> None:
    budget = SearchBudget(deadline=0, messages=MIN_COUNTED_MESSAGES, bytes=1)
    budget.spend(FilteredBatch([], 0, 0, None))
    assert budget.is_spent


# ---- who shares a search ---------------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> SearchRegistry:
    """Searches of which two are remembered without a receiver."""
    monkeypatch.setattr(search_state, "MAX_IDLE_SEARCHES", 2)
    return SearchRegistry(VirtualClock(), max_receivers=2)


def visit(registry: SearchRegistry, wait_key: int, matching: CelFilter) -> SearchState:
    """The search that a receiver finds, which leaves at once."""
    with registry.join(wait_key, matching) as search:
        return search


def test_receivers_are_counted_until_they_leave(registry: SearchRegistry) -> None:
    for _ in range(2):
        with (
            registry.join(WAIT_KEY, A),
            registry.join(WAIT_KEY, B),
            pytest.raises(RateLimited),
            registry.join(WAIT_KEY, C),
        ):
            pass


def test_a_line_has_receivers_while_one_is_there(registry: SearchRegistry) -> None:
    visit(registry, WAIT_KEY, A)
    assert not registry.has_receivers(WAIT_KEY)
    with registry.join(WAIT_KEY, B):
        with registry.join(WAIT_KEY, B):
            assert registry.has_receivers(WAIT_KEY)
        assert registry.has_receivers(WAIT_KEY)
        assert not registry.has_receivers(OTHER_WAIT_KEY)
    assert not registry.has_receivers(WAIT_KEY)


def test_the_search_that_was_used_longest_ago_is_forgotten_first(registry: SearchRegistry) -> None:
    first, second = visit(registry, WAIT_KEY, A), visit(registry, WAIT_KEY, B)
    assert visit(registry, WAIT_KEY, A) is first
    assert visit(registry, WAIT_KEY, B) is second
    third = visit(registry, OTHER_WAIT_KEY, A)
    assert visit(registry, WAIT_KEY, B) is second
    assert visit(registry, OTHER_WAIT_KEY, A) is third
    assert visit(registry, WAIT_KEY, A) is not first


def test_a_search_with_a_receiver_is_not_forgotten(registry: SearchRegistry) -> None:
    visit(registry, WAIT_KEY, A)
    with registry.join(WAIT_KEY, A) as search:
        for matching in (B, C):
            visit(registry, WAIT_KEY, matching)
        assert visit(registry, WAIT_KEY, A) is search


def test_what_comes_to_a_line_is_news_to_each_of_its_searches(registry: SearchRegistry) -> None:
    with registry.join(WAIT_KEY, A) as one, registry.join(WAIT_KEY, B) as other:
        for search in (one, other):
            search.advance(START_POSITION, position(9))
        registry.note_receivable(WAIT_KEY, 7, None)
        registry.note_receivable(OTHER_WAIT_KEY, 8, None)
    assert [search.take_missed(10) for search in (one, other)] == [[7], [7]]
