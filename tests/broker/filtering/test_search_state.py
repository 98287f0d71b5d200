"""A search stores where to continue: a position in the order of delivery, and the numbers of messages behind it."""

import pytest

from app.broker.filtering.filtered_read import FilteredBatch
from app.broker.filtering.filters import CelFilter
from app.broker.filtering.search_state import _MAX_MISSED, _RESCAN_SECONDS, SearchRegistry, SearchState
from app.broker.receiving.search_limits import _MIN_COUNTED_MESSAGES, SearchBudget
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


# ---- noted messages --------------------------------------------------------------------------------------------------


def search_at(number: int) -> SearchState:
    """Return a search that has reached the position of this message."""
    search = SearchState(now=0)
    search.advance(START_POSITION, position(number))
    return search


@pytest.mark.parametrize(
    ("new_position", "noted"),
    [(position(4), [9]), (position(5), [9]), (position(6), []), (None, [9])],
    ids=["behind the search", "at its position", "ahead of it", "unknown"],
)
def test_only_messages_behind_the_search_are_noted(new_position: DeliveryPosition | None, noted: list[int]) -> None:
    search = search_at(5)
    search.note_receivable(9, new_position)
    assert search.take_missed(10) == noted


def test_a_search_at_the_start_notes_no_messages() -> None:
    search = SearchState(now=0)
    search.note_receivable(9, None)
    assert search.take_missed(10) == []


def test_an_active_scan_notes_every_message() -> None:
    search = search_at(5)
    search.active_scans = 1
    search.note_receivable(9, position(6))
    assert search.take_missed(10) == [9]


def test_noted_messages_are_taken_once_lowest_numbers_first() -> None:
    search = search_at(5)
    for number in (3, 1, 2):
        search.note_receivable(number, None)
    assert search.take_missed(2) == [1, 2]
    assert search.take_missed(2) == [3]
    assert search.take_missed(2) == []


def test_a_search_with_too_many_noted_messages_starts_again() -> None:
    search = search_at(5)
    for number in range(_MAX_MISSED):
        search.note_receivable(number, None)
    assert search.position == position(5)
    search.note_receivable(_MAX_MISSED, None)
    assert search.position == START_POSITION
    assert search.take_missed(_MAX_MISSED) == []


def test_a_search_that_was_moved_meanwhile_does_not_advance() -> None:
    search = search_at(5)
    search.advance(position(4), position(6))
    assert search.position == position(5)


# ---- batches and budgets ---------------------------------------------------------------------------------------------


def test_a_rescan_is_due_at_intervals() -> None:
    search = SearchState(now=10)
    due = 10 + _RESCAN_SECONDS
    assert [search.start_rescan(now) for now in (10, due, due, due + _RESCAN_SECONDS)] == [False, True, False, True]


def test_the_batch_size_follows_the_weight_of_the_last_batch() -> None:
    search = SearchState(now=0)
    assert search.batch_size(200, 10 * MAX_METADATA_BYTES) == 10, "the first one expects the largest properties"
    search.record_batch(5, 5 * 1000)
    assert search.batch_size(200, 20_000) == 20
    assert search.batch_size(15, 20_000) == 15
    assert search.batch_size(200, 999) == 1, "one is always read"
    search.record_batch(0, 0)
    assert search.batch_size(200, 20_000) == 20, "an empty read changes nothing"


@pytest.mark.parametrize(("count", "weight", "is_spent"), [(49, 999, False), (50, 0, True), (0, 1000, True)])
def test_a_budget_is_spent_when_messages_or_bytes_run_out(count: int, weight: int, is_spent: bool) -> None:
    budget = SearchBudget(deadline=0, messages=50, bytes=1000)
    budget.spend(FilteredBatch([], count, weight, None))
    assert budget.is_spent is is_spent


def test_an_empty_read_also_spends_the_budget() -> None:
    budget = SearchBudget(deadline=0, messages=_MIN_COUNTED_MESSAGES, bytes=1)
    budget.spend(FilteredBatch([], 0, 0, None))
    assert budget.is_spent


# ---- shared searches -------------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> SearchRegistry:
    """A registry that keeps two searches without a receiver."""
    return SearchRegistry(VirtualClock(), max_receivers=2, max_idle=2)


def visit(registry: SearchRegistry, wait_key: int, message_filter: CelFilter) -> SearchState:
    """Join a search and leave it at once."""
    with registry.join(wait_key, message_filter) as search:
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


def test_a_wait_key_has_receivers_until_the_last_one_leaves(registry: SearchRegistry) -> None:
    visit(registry, WAIT_KEY, A)
    assert not registry.has_receivers(WAIT_KEY)
    with registry.join(WAIT_KEY, B):
        with registry.join(WAIT_KEY, B):
            assert registry.has_receivers(WAIT_KEY)
        assert registry.has_receivers(WAIT_KEY)
        assert not registry.has_receivers(OTHER_WAIT_KEY)
    assert not registry.has_receivers(WAIT_KEY)


def test_the_least_recently_used_idle_search_is_dropped_first(registry: SearchRegistry) -> None:
    first, second = visit(registry, WAIT_KEY, A), visit(registry, WAIT_KEY, B)
    assert visit(registry, WAIT_KEY, A) is first
    assert visit(registry, WAIT_KEY, B) is second
    third = visit(registry, OTHER_WAIT_KEY, A)
    assert visit(registry, WAIT_KEY, B) is second
    assert visit(registry, OTHER_WAIT_KEY, A) is third
    assert visit(registry, WAIT_KEY, A) is not first


def test_a_search_with_a_receiver_is_not_dropped(registry: SearchRegistry) -> None:
    visit(registry, WAIT_KEY, A)
    with registry.join(WAIT_KEY, A) as search:
        for message_filter in (B, C):
            visit(registry, WAIT_KEY, message_filter)
        assert visit(registry, WAIT_KEY, A) is search


def test_a_message_is_noted_in_every_search_of_its_wait_key(registry: SearchRegistry) -> None:
    with registry.join(WAIT_KEY, A) as one, registry.join(WAIT_KEY, B) as other:
        for search in (one, other):
            search.advance(START_POSITION, position(9))
        registry.note_receivable(WAIT_KEY, 7, None)
        registry.note_receivable(OTHER_WAIT_KEY, 8, None)
    assert [search.take_missed(10) for search in (one, other)] == [[7], [7]]
