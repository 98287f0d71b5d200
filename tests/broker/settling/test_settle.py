"""Settlements of one request: each has its own result, in order, regardless of the others."""

from collections.abc import AsyncIterator

import pytest

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, complete, defer
from app.broker.settling.settle import settle
from app.domain.message import MAX_PROPERTIES, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import AlreadySettled, InvalidRequest, MessageNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, Outcome, Settled, token_of
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock

TOO_MANY = {f"property-{number}": number for number in range(MAX_PROPERTIES + 1)}


@pytest.fixture
async def broker(sqlite_url: str) -> AsyncIterator[OpenBroker]:
    async with sqlite_broker(sqlite_url, VirtualClock()) as broker:
        yield broker


async def locked(broker: OpenBroker, name: str, number: int) -> tuple[Queue, list[LockToken]]:
    """Return a queue and the tokens of all messages in it."""
    queue, _ = await broker.store.queues.create(name, QueueSettings())
    await send(broker.sending, queue.name, [NewMessage(Envelope("")) for _ in range(number)])
    return queue, [
        token_of(message)
        for message in (await receive(broker.receiving, queue, ReceiveRequest(max_messages=number))).result
    ]


async def test_each_settlement_has_its_own_result(broker: OpenBroker) -> None:
    queue, (gone, first, refused, second, third) = await locked(broker, "orders", 5)
    _, (foreign,) = await locked(broker, "others", 1)
    await settle(broker.settling, queue, [complete(queue, gone)])
    requests = [
        abandon(queue, gone, Abandonment()),
        complete(queue, first),
        defer(queue, refused, TOO_MANY),
        abandon(queue, second, Abandonment()),
        abandon(queue, foreign, Abandonment()),
        complete(queue, third),
    ]
    already, completed, invalid, abandoned, unknown, last = await settle(broker.settling, queue, requests)
    assert isinstance(already, AlreadySettled)
    assert isinstance(invalid, InvalidRequest)
    assert isinstance(unknown, MessageNotFound)
    assert (completed, abandoned, last) == (
        Settled(first.sequence_number, Outcome.COMPLETED, None),
        Settled(second.sequence_number, Outcome.ABANDONED, MessageState.AVAILABLE),
        Settled(third.sequence_number, Outcome.COMPLETED, None),
    )
    (untouched,) = await broker.store.locked_messages([refused])
    assert untouched is not None
