"""Who is next, what was delivered before, and what weight an answer has room for."""

import pytest

from app.domain.delivery import is_deliverable, is_redelivered, line_of, place_in_order
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.weight import ROW_BYTES, chosen, fitting, weight_of
from tests.domain.messages import message, outline


def test_receivers_of_dead_letters_wait_in_a_line_of_their_own() -> None:
    assert line_of(3, MessageState.AVAILABLE) == line_of(3, MessageState.DEFERRED) == 3
    assert line_of(3, MessageState.DEAD_LETTERED) == -3


def test_a_higher_priority_goes_first_then_who_is_available_longest_then_the_lower_number() -> None:
    first = message(priority=5, available_at=300, sequence_number=9)
    second = message(available_at=199, sequence_number=9)
    third, fourth = message(), message(sequence_number=8)
    assert sorted([fourth, third, second, first], key=place_in_order) == [first, second, third, fourth]


@pytest.mark.parametrize(
    ("state", "deliveries", "redelivered"),
    [
        (MessageState.AVAILABLE, 0, False),
        (MessageState.AVAILABLE, 1, True),
        (MessageState.LOCKED, 1, False),
        (MessageState.LOCKED, 2, True),
    ],
)
def test_a_message_is_redelivered_if_it_was_delivered_before_the_delivery_that_it_is_in(
    state: MessageState, deliveries: int, redelivered: bool
) -> None:
    assert is_redelivered(message(state=state, delivery_count=deliveries)) is redelivered


def test_a_message_is_delivered_until_the_end_of_its_life() -> None:
    assert is_deliverable(message(), now=1_000)
    assert is_deliverable(message(expires_at=1_001), now=1_000)
    assert not is_deliverable(message(expires_at=1_000), now=1_000)
    assert not is_deliverable(message(state=MessageState.SCHEDULED), now=1_000)


def test_a_message_weighs_its_row_its_body_and_its_properties() -> None:
    envelope = Envelope("m", properties=b"1234567")
    assert weight_of(Draft(1, envelope, b"12345", BodyKind.BYTES)) == ROW_BYTES + 12
    assert chosen(outline(body_bytes=5, envelope=envelope)).weight == ROW_BYTES + 12


@pytest.mark.parametrize(
    ("weights", "count"), [([], 0), ([11], 1), ([4, 6], 2), ([4, 7], 1), ([11, 1], 1), ([4, 7, 1], 1), ([0, 10, 1], 2)]
)
def test_an_answer_holds_what_fits_in_order_and_at_least_one_message(weights: list[int], count: int) -> None:
    assert fitting(weights, budget=10) == count
