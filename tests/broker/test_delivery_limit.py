"""Failures count towards the delivery limit; uncounted deliveries do not."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from app.broker.administration.queues import change_queue, reload_queue
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, release
from app.broker.settling.settle import release_undelivered, settle_one
from app.domain.delivery import Claim
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_DELIVERY_COUNT_REASON, token_of
from app.maintenance.expiry import expire_locks
from app.store.migrate import migrate
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock

MAX_DELIVERY_COUNT = 1
DELIVERIES = 2 * MAX_DELIVERY_COUNT + 3
"""More uncounted deliveries than any multiple of the limit that a safeguard might allow."""

LOCK_SECONDS = 30


@pytest.fixture
async def broker(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[OpenBroker]:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, clock) as broker:
        yield broker


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_delivery_count=MAX_DELIVERY_COUNT))
    return queue


async def sent(broker: OpenBroker, queue: Queue, count: int = 1) -> list[int]:
    receipts = (await send(broker.sending, queue.name, [NewMessage(Envelope("")) for _ in range(count)])).result
    return [receipt.sequence_number for receipt in receipts]


async def one_by_one(broker: OpenBroker, queue: Queue) -> Message:
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    return message


async def one_by_key(broker: OpenBroker, queue: Queue) -> Message:
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest(), attempt)).result
    return message


async def abandon_uncounted(broker: OpenBroker, queue: Queue, message: Message) -> None:
    """A stopping receiver returns the message unprocessed."""
    await settle_one(broker.settling, queue, abandon(queue, token_of(message), Abandonment(counted=False)))


async def release_unprocessed(broker: OpenBroker, queue: Queue, message: Message) -> None:
    """A stopping receiver releases the message."""
    await settle_one(broker.settling, queue, release(queue, token_of(message)))


async def disconnect(broker: OpenBroker, queue: Queue, message: Message) -> None:
    """The receiver disconnects before its response begins."""
    await release_undelivered(broker.settling, queue, [message])


async def change_settings(broker: OpenBroker, queue: Queue, _message: Message) -> None:
    """The owner of the queue changes a setting that receivers rely on."""
    now = await reload_queue(broker.administration, queue.name)
    await change_queue(broker.administration, now, lambda old: replace(old, lock_duration=old.lock_duration + 1))


ReceiveMessage: TypeAlias = Callable[[OpenBroker, Queue], Awaitable[Message]]
EndDelivery: TypeAlias = Callable[[OpenBroker, Queue, Message], Awaitable[None]]


@pytest.mark.behaviour("S2.21")
@pytest.mark.parametrize("ending", [abandon_uncounted, change_settings])
@pytest.mark.parametrize("receive_one", [one_by_one, one_by_key])
async def test_deliveries_that_end_uncounted_never_lead_to_the_dead_letter_queue(
    broker: OpenBroker, queue: Queue, receive_one: ReceiveMessage, ending: EndDelivery
) -> None:
    (number,) = await sent(broker, queue)
    for delivery in range(1, DELIVERIES + 1):
        message = await receive_one(broker, queue)
        assert (message.sequence_number, message.delivery_count, message.failure_count) == (number, delivery, 0)
        await ending(broker, queue, message)


@pytest.mark.behaviour("S2.21", "S2.29")
@pytest.mark.parametrize("ending", [release_unprocessed, disconnect])
@pytest.mark.parametrize("receive_one", [one_by_one, one_by_key])
async def test_deliveries_that_are_released_do_not_count(
    broker: OpenBroker, queue: Queue, receive_one: ReceiveMessage, ending: EndDelivery
) -> None:
    (number,) = await sent(broker, queue)
    for _ in range(DELIVERIES):
        message = await receive_one(broker, queue)
        assert (message.sequence_number, message.delivery_count, message.failure_count) == (number, 1, 0)
        await ending(broker, queue, message)


@pytest.mark.behaviour("S2.29")
async def test_a_delivery_limit_of_one_allows_one_failure(broker: OpenBroker, queue: Queue) -> None:
    (number,) = await sent(broker, queue)
    await abandon_uncounted(broker, queue, await one_by_one(broker, queue))
    message = await one_by_one(broker, queue)
    await settle_one(broker.settling, queue, abandon(queue, token_of(message), Abandonment()))
    assert (await receive(broker.receiving, queue, ReceiveRequest())).result == []
    (dead,) = await broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert (dead.sequence_number, dead.failure_count, dead.dead_letter_reason) == (number, 1, MAX_DELIVERY_COUNT_REASON)


@pytest.mark.behaviour("S2.3")
async def test_the_dead_letter_queue_has_no_delivery_limit(broker: OpenBroker, queue: Queue) -> None:
    (number,) = await sent(broker, queue)
    message = await one_by_one(broker, queue)
    await settle_one(broker.settling, queue, abandon(queue, token_of(message), Abandonment()))
    for _ in range(DELIVERIES):
        (dead,) = (await receive(broker.receiving, queue, ReceiveRequest(source=MessageState.DEAD_LETTERED))).result
        assert dead.sequence_number == number
        await settle_one(broker.settling, queue, abandon(queue, token_of(dead), Abandonment()))


@pytest.mark.behaviour("S2.28")
async def test_a_receiver_that_dies_with_several_messages_counts_a_failure_of_each(
    broker: OpenBroker, clock: VirtualClock
) -> None:
    queue, _ = await broker.store.queues.create("patient", QueueSettings(max_delivery_count=2))
    numbers = await sent(broker, queue, 2)
    await receive(broker.receiving, queue, ReceiveRequest(max_messages=2))
    await clock.advance(LOCK_SECONDS)
    await expire_locks(broker.settling)
    stored = await broker.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    assert [(m.sequence_number, m.delivery_count, m.failure_count) for m in stored] == [(n, 1, 1) for n in numbers]


@pytest.mark.behaviour("S2.24")
async def test_a_crash_before_the_response_still_counts_the_delivery(broker: OpenBroker, clock: VirtualClock) -> None:
    """The claim counts the delivery, so after a crash the count may be too high but never too low."""
    queue, _ = await broker.store.queues.create("patient", QueueSettings(max_delivery_count=2))
    (number,) = await sent(broker, queue)
    assert await broker.store.claim(Claim(queue.id, 1, queue.settings.lock_duration))  # no response follows
    await clock.advance(LOCK_SECONDS)
    await expire_locks(broker.settling)
    message = await one_by_one(broker, queue)
    assert (message.sequence_number, message.delivery_count, message.failure_count) == (number, 2, 1)
