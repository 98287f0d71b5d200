"""What a holder says when it ends a delivery is noted on the message: reasons, and changes to its properties."""

from collections.abc import Callable

import pytest

from app.broker.abandon import Abandonment, abandon
from app.broker.amend import Scalar, amended
from app.broker.broker import Broker
from app.broker.dead_letter import dead_letter
from app.broker.defer import defer
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.broker.settling import Ask, settle_one
from app.domain.message import LARGEST_PROPERTIES, MOST_PROPERTIES, Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest
from app.domain.sending import Letter
from app.domain.settlement import LockToken, token_of

Changes = dict[str, Scalar] | None


async def ended(broker: Broker, queue: Queue, ending: Callable[[LockToken], Ask]) -> Message:
    """A message with the property `a`, as this ending of its delivery leaves it."""
    await send(broker, queue, [Letter(Envelope("", properties=b'{"a":1}'))])
    (message,) = await receive(broker, queue, Wish())
    await settle_one(broker, queue, ending(token_of(message)))
    left = await broker.store.read(queue.id, message.sequence_number)
    assert left is not None
    return left


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        (Abandonment(), "abandoned"),
        (Abandonment("no stock"), "no stock"),
        (Abandonment(counted=False), None),
        (Abandonment("draining", counted=False), "draining"),
    ],
    ids=str,
)
async def test_a_failure_has_a_reason_and_a_release_only_if_one_is_given(
    broker: Broker, queue: Queue, said: Abandonment, noted: str | None
) -> None:
    message = await ended(broker, queue, lambda token: abandon(broker, queue, token, said))
    assert (message.last_failure, message.failure_count) == (noted, int(said.counted))


async def test_a_dead_letter_has_the_reason_and_the_description_of_its_holder(broker: Broker, queue: Queue) -> None:
    message = await ended(broker, queue, lambda token: dead_letter(queue, token, "bad", "no such customer"))
    assert (message.dead_letter_reason, message.dead_letter_description) == ("bad", "no such customer")


@pytest.mark.parametrize(
    ("changes", "properties"), [(None, b'{"a":1}'), ({}, b'{"a":1}'), ({"a": None, "b": 2}, b'{"a":null,"b":2}')]
)
async def test_every_ending_that_keeps_the_message_may_change_its_properties(
    broker: Broker, queue: Queue, changes: Changes, properties: bytes
) -> None:
    endings: dict[MessageState, Callable[[LockToken], Ask]] = {
        MessageState.DEAD_LETTERED: lambda token: dead_letter(queue, token, "bad", None, changes),
        MessageState.DEFERRED: lambda token: defer(queue, token, changes),
        MessageState.AVAILABLE: lambda token: abandon(broker, queue, token, Abandonment(changes=changes)),
    }
    for state, ending in endings.items():
        message = await ended(broker, queue, ending)
        assert (message.state, message.envelope.properties) == (state, properties)


def test_properties_are_bounded_in_number() -> None:
    most: dict[str, Scalar] = {f"p{number}": number for number in range(MOST_PROPERTIES)}
    assert amended(amended(b"", most), {"p0": "changed"}).startswith(b'{"p0":"changed","p1":1,')
    with pytest.raises(InvalidRequest) as refused:
        amended(amended(b"", most), {"another": 1})
    assert [fault.pointer for fault in refused.value.faults] == ["/properties"]


def test_properties_are_bounded_in_bytes() -> None:
    room = LARGEST_PROPERTIES - len('{"a":""}')
    assert len(amended(b"", {"a": "x" * room})) == LARGEST_PROPERTIES
    with pytest.raises(InvalidRequest):
        amended(b"", {"a": "x" * (room + 1)})
