"""The state of a message after its lock ends without success."""

import pytest
from msgspec.structs import replace

from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.queue import QueueSettings
from app.domain.retry import FixedDelay
from app.domain.settlement import MAX_DELIVERY_COUNT_REASON, Failure, LockedMessage, LockToken, Outcome, release

HELD = LockedMessage(
    token=LockToken(1, b"0123456789abcdef"),
    queue_id=1,
    lock_generation=0,
    locked_until=30 * SECOND,
    home_state=MessageState.AVAILABLE,
    delivery_count=1,
    failure_count=0,
    properties=b"",
    is_in_group=False,
    is_in_transaction=False,
    read_at=0,
)
ABANDONED = Failure(Outcome.ABANDONED, "busy")


@pytest.mark.behaviour("S3.17", "S0.14")
def test_a_release_without_a_delay_keeps_the_position() -> None:
    move = release(HELD, QueueSettings(), ABANDONED, random_fraction=0.0)
    assert (move.state, move.delay, move.failures, move.last_failure) == (MessageState.AVAILABLE, None, 1, "busy")


@pytest.mark.behaviour("S2.7")
def test_the_retry_policy_delays_a_failed_message() -> None:
    move = release(HELD, QueueSettings(retry=FixedDelay(5 * SECOND)), ABANDONED, random_fraction=0.0)
    assert (move.state, move.delay) == (MessageState.SCHEDULED, 5 * SECOND)


def test_a_requested_delay_overrides_the_retry_policy_even_if_it_is_zero() -> None:
    settings = QueueSettings(retry=FixedDelay(5 * SECOND))
    assert release(HELD, settings, replace(ABANDONED, delay=SECOND), random_fraction=0.0).delay == SECOND
    assert release(HELD, settings, replace(ABANDONED, delay=0), random_fraction=0.0).state is MessageState.AVAILABLE


@pytest.mark.behaviour("S3.18", "S2.8")
def test_a_failure_at_the_limit_dead_letters_the_message() -> None:
    settings = QueueSettings(max_delivery_count=3)
    assert release(replace(HELD, failure_count=1), settings, ABANDONED, 0.0).state is MessageState.AVAILABLE
    last = release(replace(HELD, failure_count=2), settings, ABANDONED, 0.0)
    assert (last.state, last.dead_letter_reason) == (MessageState.DEAD_LETTERED, MAX_DELIVERY_COUNT_REASON)
    assert last.outcome is Outcome.ABANDONED


@pytest.mark.behaviour("S2.21")
def test_an_uncounted_release_neither_counts_nor_waits_nor_dead_letters() -> None:
    settings = QueueSettings(max_delivery_count=1, retry=FixedDelay(SECOND))
    move = release(HELD, settings, replace(ABANDONED, counted=False), random_fraction=0.0)
    assert (move.state, move.delay, move.failures) == (MessageState.AVAILABLE, None, 0)


def test_a_message_from_the_dead_letter_queue_returns_there_uncounted() -> None:
    locked = replace(HELD, home_state=MessageState.DEAD_LETTERED, failure_count=10)
    move = release(locked, QueueSettings(), ABANDONED, random_fraction=0.0)
    assert (move.state, move.failures, move.dead_letter_reason) == (MessageState.DEAD_LETTERED, 0, None)


def test_a_failed_deferred_message_stays_deferred_and_is_counted() -> None:
    locked = replace(HELD, home_state=MessageState.DEFERRED)
    move = release(locked, QueueSettings(retry=FixedDelay(SECOND)), ABANDONED, random_fraction=0.0)
    assert (move.state, move.failures, move.delay) == (MessageState.DEFERRED, 1, None)
