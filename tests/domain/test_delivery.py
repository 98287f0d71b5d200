"""The order of delivery, redelivery, and the weight that fits into a response."""

import pytest

from app.domain.delivery import delivery_position, is_deliverable, is_redelivered, lock_end, wait_key_of
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.queue import HELD_LOCK_DURATION, MAX_LOCK_DURATION
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, count_that_fit, select_message, weight_of
from tests.domain.messages import message, metadata


def test_receivers_of_dead_letters_have_their_own_wait_key() -> None:
    assert wait_key_of(3, MessageState.AVAILABLE) == wait_key_of(3, MessageState.DEFERRED) == 3
    assert wait_key_of(3, MessageState.DEAD_LETTERED) == -3


def test_order_is_priority_then_available_at_then_sequence_number() -> None:
    first = message(priority=5, available_at=300, sequence_number=9)
    second = message(available_at=199, sequence_number=9)
    third, fourth = message(), message(sequence_number=8)
    assert sorted([fourth, third, second, first], key=delivery_position) == [first, second, third, fourth]


@pytest.mark.parametrize(
    ("state", "deliveries", "redelivered"),
    [
        (MessageState.AVAILABLE, 0, False),
        (MessageState.AVAILABLE, 1, True),
        (MessageState.LOCKED, 1, False),
        (MessageState.LOCKED, 2, True),
    ],
)
def test_redelivered_means_an_earlier_delivery_exists(state: MessageState, deliveries: int, redelivered: bool) -> None:
    assert is_redelivered(message(state=state, delivery_count=deliveries)) is redelivered


def test_a_message_is_deliverable_until_its_time_to_live_ends() -> None:
    assert is_deliverable(message(), now=1_000)
    assert is_deliverable(message(expires_at=1_001), now=1_000)
    assert not is_deliverable(message(expires_at=1_000), now=1_000)
    assert not is_deliverable(message(state=MessageState.SCHEDULED), now=1_000)


@pytest.mark.parametrize("source", [MessageState.AVAILABLE, MessageState.DEFERRED, MessageState.DEAD_LETTERED])
def test_a_lock_that_ends_by_time_may_outlive_its_message(source: MessageState) -> None:
    assert lock_end(100, MAX_LOCK_DURATION, 200, source) == 100 + MAX_LOCK_DURATION


@pytest.mark.behaviour("S1.47")
def test_a_lock_that_does_not_end_by_time_ends_with_its_message() -> None:
    century = 100 + HELD_LOCK_DURATION
    assert lock_end(100, HELD_LOCK_DURATION, 200, MessageState.AVAILABLE) == 200
    assert lock_end(100, HELD_LOCK_DURATION, 200, MessageState.DEFERRED) == 200
    assert lock_end(100, HELD_LOCK_DURATION, century + 1, MessageState.AVAILABLE) == century
    assert lock_end(100, HELD_LOCK_DURATION, None, MessageState.AVAILABLE) == century
    assert lock_end(100, HELD_LOCK_DURATION, 200, MessageState.DEAD_LETTERED) == century


def test_a_message_weighs_its_row_its_body_and_its_properties() -> None:
    envelope = Envelope("m", properties=b"1234567")
    assert weight_of(Draft(1, envelope, b"12345", BodyKind.BYTES)) == MESSAGE_OVERHEAD_BYTES + 12
    assert select_message(metadata(body_bytes=5, envelope=envelope)).weight == MESSAGE_OVERHEAD_BYTES + 12


@pytest.mark.parametrize(
    ("weights", "count"), [([], 0), ([11], 1), ([4, 6], 2), ([4, 7], 1), ([11, 1], 1), ([4, 7, 1], 1), ([0, 10, 1], 2)]
)
def test_a_response_holds_the_messages_that_fit_and_at_least_one(weights: list[int], count: int) -> None:
    assert count_that_fit(weights, budget=10) == count
