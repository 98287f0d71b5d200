"""Each message of a send has its result, and a repeat with the same key gets the first result."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.queues import change_queue, delete_queue
from app.broker.ports.attempts import Attempt
from app.broker.sending.send import send, send_each, send_volatile
from app.domain.instant import HOUR
from app.domain.message import BodyKind, Envelope, Receipt
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import MessageTooLarge, QueueFull, QueueNotFound, Refusal, SendDisabled
from app.domain.sending import NewMessage
from tests.brokers import OpenBroker, result_of, sqlite_broker
from tests.virtual_clock import VirtualClock

NEW_MESSAGE = NewMessage(Envelope(""))
TOO_LARGE = NewMessage(Envelope(""), b"xx", BodyKind.BYTES)
CLOSED = {"status": QueueStatus.SEND_DISABLED}


def attempt(key: bytes) -> Attempt:
    return Attempt(key * 32, b"f" * 32, HOUR)


@pytest.fixture
async def broker() -> AsyncIterator[OpenBroker]:
    async with sqlite_broker("sqlite://", VirtualClock(), auto_create=False) as broker:
        yield broker


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_messages=3, max_message_bytes=1))
    return queue


async def changed(broker: OpenBroker, queue: Queue, **settings: Any) -> Queue:
    return await change_queue(broker.administration, queue, lambda before: replace(before, **settings))


async def test_a_send_stores_all_messages_or_none(broker: OpenBroker, queue: Queue) -> None:
    for new_messages, refusal in (([NEW_MESSAGE] * 4, QueueFull), ([NEW_MESSAGE, TOO_LARGE], MessageTooLarge)):
        with pytest.raises(refusal):
            await send(broker.sending, queue.name, new_messages)
    assert await broker.store.queues.total(queue.id) == 0
    assert len((await send(broker.sending, queue.name, [NEW_MESSAGE] * 3)).result) == 3


async def test_each_message_of_a_batch_has_its_receipt_or_refusal(broker: OpenBroker, queue: Queue) -> None:
    answers = await send_each(
        broker.sending, queue.name, [TOO_LARGE, NEW_MESSAGE, NEW_MESSAGE, TOO_LARGE, NEW_MESSAGE, NEW_MESSAGE]
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [MessageTooLarge, Receipt, Receipt, MessageTooLarge, Receipt, QueueFull]
    stored = [answer.sequence_number for answer in answers if isinstance(answer, Receipt)]
    assert stored == sorted(stored)
    assert await broker.store.queues.total(queue.id) == len(stored) == 3


async def test_a_queue_with_sends_disabled_refuses_messages(broker: OpenBroker, queue: Queue) -> None:
    closed = await changed(broker, queue, **CLOSED)
    for operation in (
        result_of(send(broker.sending, closed.name, [NEW_MESSAGE])),
        send_each(broker.sending, closed.name, [NEW_MESSAGE]),
        send(broker.sending, closed.name, [NEW_MESSAGE], attempt(b"k")),
        send_volatile(broker.sending, closed.name, NEW_MESSAGE),
    ):
        with pytest.raises(SendDisabled):
            await operation


async def is_closed(broker: OpenBroker, queue: Queue) -> None:
    await changed(broker, queue, **CLOSED)


async def is_deleted(broker: OpenBroker, queue: Queue) -> None:
    await delete_queue(broker.administration, queue)


async def is_full(broker: OpenBroker, queue: Queue) -> None:
    await changed(broker, queue, max_messages=1)


@pytest.mark.parametrize(
    ("happens", "refusal"),
    [(is_closed, SendDisabled), (is_full, QueueFull), (is_deleted, QueueNotFound)],
    ids=["closed", "full", "deleted"],
)
async def test_a_repeated_send_gets_the_first_result_after_its_queue_refuses_sends(
    broker: OpenBroker, queue: Queue, happens: Any, refusal: type[Refusal]
) -> None:
    first = await send(broker.sending, queue.name, [NEW_MESSAGE], attempt(b"k"))
    assert not first.replayed
    await happens(broker, queue)
    repeat = await send(broker.sending, queue.name, [NEW_MESSAGE], attempt(b"k"))
    assert (repeat.replayed, repeat.result) == (True, first.result)
    with pytest.raises(refusal):
        await send(broker.sending, queue.name, [NEW_MESSAGE], attempt(b"o"))


async def test_a_volatile_send_returns_the_given_or_created_message_id(broker: OpenBroker, queue: Queue) -> None:
    own = await send_volatile(broker.sending, queue.name, NewMessage(Envelope("own")))
    made = await send_volatile(broker.sending, queue.name, NEW_MESSAGE)
    assert own == "own"
    assert made.startswith("made-")
    await broker.volatile_buffer.close()
    assert await broker.store.queues.total(queue.id) == 2
