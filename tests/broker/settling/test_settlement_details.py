"""A settlement stores its reason and its changes to the properties on the message."""

from collections.abc import Callable

import pytest

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, Scalar, abandon, dead_letter, defer, merge_properties
from app.broker.settling.settle import SettlementRequest, settle_one
from app.domain.message import MAX_PROPERTIES, MAX_PROPERTIES_BYTES, Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from tests.brokers import OpenBroker

Changes = dict[str, Scalar] | None


async def settled_message(
    broker: OpenBroker, queue: Queue, settlement: Callable[[LockToken], SettlementRequest]
) -> Message:
    """Settle a message with the property `a`, and return it."""
    await send(broker.sending, queue.name, [NewMessage(Envelope("", properties=b'{"a":1}'))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, settlement(token_of(message)))
    left = await broker.store.read(queue.id, message.sequence_number)
    assert left is not None
    return left


@pytest.mark.parametrize(
    ("abandonment", "reason"),
    [
        (Abandonment(), "abandoned"),
        (Abandonment("no stock"), "no stock"),
        (Abandonment(counted=False), None),
        (Abandonment("draining", counted=False), "draining"),
    ],
    ids=str,
)
async def test_a_failure_has_a_default_reason_and_an_uncounted_release_none(
    broker: OpenBroker, queue: Queue, abandonment: Abandonment, reason: str | None
) -> None:
    message = await settled_message(broker, queue, lambda token: abandon(queue, token, abandonment))
    assert (message.last_failure, message.failure_count) == (reason, int(abandonment.counted))


async def test_a_dead_letter_stores_the_reason_and_description_of_its_holder(broker: OpenBroker, queue: Queue) -> None:
    message = await settled_message(broker, queue, lambda token: dead_letter(queue, token, "bad", "no such customer"))
    assert (message.dead_letter_reason, message.dead_letter_description) == ("bad", "no such customer")


@pytest.mark.parametrize(
    ("changes", "properties"), [(None, b'{"a":1}'), ({}, b'{"a":1}'), ({"a": None, "b": 2}, b'{"a":null,"b":2}')]
)
async def test_abandon_defer_and_dead_letter_can_change_properties(
    broker: OpenBroker, queue: Queue, changes: Changes, properties: bytes
) -> None:
    settlements: dict[MessageState, Callable[[LockToken], SettlementRequest]] = {
        MessageState.DEAD_LETTERED: lambda token: dead_letter(queue, token, "bad", None, changes),
        MessageState.DEFERRED: lambda token: defer(queue, token, changes),
        MessageState.AVAILABLE: lambda token: abandon(queue, token, Abandonment(changes=changes)),
    }
    for state, settlement in settlements.items():
        message = await settled_message(broker, queue, settlement)
        assert (message.state, message.envelope.properties) == (state, properties)


def test_the_number_of_properties_is_limited() -> None:
    maximum: dict[str, Scalar] = {f"p{number}": number for number in range(MAX_PROPERTIES)}
    assert merge_properties(merge_properties(b"", maximum), {"p0": "changed"}).startswith(b'{"p0":"changed","p1":1,')
    with pytest.raises(InvalidRequest) as refused:
        merge_properties(merge_properties(b"", maximum), {"another": 1})
    assert [error.pointer for error in refused.value.field_errors] == ["/properties"]


def test_the_bytes_of_properties_are_limited() -> None:
    room = MAX_PROPERTIES_BYTES - len('{"a":""}')
    assert len(merge_properties(b"", {"a": "x" * room})) == MAX_PROPERTIES_BYTES
    with pytest.raises(InvalidRequest):
        merge_properties(b"", {"a": "x" * (room + 1)})
