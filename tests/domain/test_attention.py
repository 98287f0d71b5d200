"""A queue needs attention if it is stuck, if dead letters rise, if it grows, or if it is paused while messages wait."""

import pytest

from app.domain.attention import Attention, AttentionCause, Trend, attention_of
from app.domain.consumer import ConsumerReport, ConsumerState, ListedConsumer
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.queue import QueueCounts, QueueStatus

QUIET = Trend(15 * MINUTE, waiting_before=0, dead_lettered_before=0, arrived=0, left=0, delivered=0)
ACTIVE = QueueStatus.ACTIVE


def trend(**changes: int) -> Trend:
    """What has happened in 15 minutes; nothing but these changes."""
    return Trend(**{name: getattr(QUIET, name) for name in Trend.__slots__} | changes)


def cause(found: Attention | None) -> AttentionCause | None:
    """The cause of an attention, None without one."""
    return found and found.cause


def test_an_empty_queue_needs_no_attention() -> None:
    assert attention_of(ACTIVE, QueueCounts(), QUIET) is None


@pytest.mark.parametrize(
    ("oldest", "delivered", "period", "expected"),
    [
        (5 * MINUTE, 0, 5 * MINUTE, AttentionCause.STUCK),
        (5 * MINUTE - SECOND, 0, 15 * MINUTE, None),
        (HOUR, 1, 15 * MINUTE, None),
        (HOUR, 0, 5 * MINUTE - SECOND, None),
    ],
)
def test_a_queue_is_stuck_if_messages_wait_and_none_is_delivered(
    oldest: int, delivered: int, period: int, expected: AttentionCause | None
) -> None:
    found = attention_of(
        ACTIVE, QueueCounts(available=1, oldest_available=oldest), trend(delivered=delivered, period=period)
    )
    assert cause(found) is expected


def test_a_stuck_queue_says_how_many_messages_wait_and_how_long() -> None:
    found = attention_of(ACTIVE, QueueCounts(available=2000, oldest_available=3 * DAY), QUIET)
    assert found is not None
    assert found.reason == "No receiver takes its messages: 2,000 messages available, the oldest for 3 days."


@pytest.mark.parametrize(("before", "after", "reason"), [(0, 1, "1 more dead letter"), (7, 9, "2 more dead letters")])
def test_more_dead_letters_need_attention(before: int, after: int, reason: str) -> None:
    found = attention_of(ACTIVE, QueueCounts(dead_lettered=after), trend(dead_lettered_before=before))
    assert found == Attention(AttentionCause.DEAD_LETTERS, f"{reason} in 15 minutes.")
    assert attention_of(ACTIVE, QueueCounts(dead_lettered=before), trend(dead_lettered_before=before)) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(0, 20, True), (0, 19, False), (1000, 1200, True), (1000, 1199, False)]
)
def test_a_queue_that_grows_by_twenty_messages_and_a_fifth_needs_attention(
    before: int, after: int, expected: bool
) -> None:
    happened = trend(waiting_before=before, arrived=5, left=3, delivered=9)
    found = attention_of(ACTIVE, QueueCounts(available=after, oldest_available=SECOND), happened)
    assert (cause(found) is AttentionCause.GROWING) == expected
    if found:
        assert found.reason == "Growing: 5 arrived and 3 left in 15 minutes."


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (QueueStatus.SEND_DISABLED, "Sends are disabled while 2 messages wait."),
        (QueueStatus.RECEIVE_DISABLED, "Receives are disabled while 2 messages wait."),
        (QueueStatus.DISABLED, "Sends and receives are disabled while 2 messages wait."),
    ],
)
def test_a_paused_queue_needs_attention_while_messages_wait(status: QueueStatus, reason: str) -> None:
    waiting = QueueCounts(available=1, blocked=1, oldest_available=SECOND)
    assert attention_of(status, waiting, trend(delivered=1)) == Attention(AttentionCause.PAUSED, reason)
    assert attention_of(status, QueueCounts(), QUIET) is None


def test_a_queue_without_receives_is_not_stuck_but_paused() -> None:
    found = attention_of(QueueStatus.RECEIVE_DISABLED, QueueCounts(available=1, oldest_available=HOUR), QUIET)
    assert cause(found) is AttentionCause.PAUSED


def test_the_most_urgent_cause_is_said() -> None:
    many = QueueCounts(available=100, dead_lettered=3, oldest_available=HOUR)
    assert cause(attention_of(ACTIVE, many, QUIET)) is AttentionCause.STUCK
    assert cause(attention_of(ACTIVE, many, trend(delivered=1))) is AttentionCause.DEAD_LETTERS


def paused(consumer: str, target: str | None = None) -> ListedConsumer:
    """A consumer that is paused."""
    return ListedConsumer(ConsumerReport(consumer, "shop", ConsumerState.PAUSED, "It failed.", target), 1, 1, 1)


def test_a_consumer_that_is_paused_comes_before_what_follows_from_it() -> None:
    stuck = QueueCounts(available=2000, oldest_available=HOUR)
    found = attention_of(ACTIVE, stuck, QUIET, [paused("a", "https://shop.example/hook")])
    assert found == Attention(
        AttentionCause.CONSUMER_PAUSED, "Calls of https://shop.example/hook are paused: It failed."
    )


def test_several_consumers_that_are_paused_are_counted() -> None:
    found = attention_of(ACTIVE, QueueCounts(), QUIET, [paused("a"), paused("b")])
    assert found is not None
    assert found.reason == "2 consumers are paused. The consumer a is paused: It failed."
