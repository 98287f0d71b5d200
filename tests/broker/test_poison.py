"""Receivers that die without a word: what their messages have counted, and when it is enough."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.ports import Attempt, Redrive, Unlocked
from app.broker.receive import Wish, receive, receive_once
from app.broker.send import send
from app.broker.settling import settle_one
from app.domain.delivery import Claim
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import Letter
from app.domain.settlement import LIMIT_REACHED, LockToken
from app.maintenance.expiry import expire_locks
from app.store.migrate import migrate
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker

LIMIT = 2
LOCK_SECONDS = 30


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Broker]:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, clock) as broker:
        yield broker


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_delivery_count=LIMIT))
    return queue


async def sent(broker: Broker, queue: Queue, count: int) -> list[int]:
    receipts = await send(broker, queue, [Letter(Envelope("")) for _ in range(count)])
    return [receipt.sequence_number for receipt in receipts]


def attempt() -> Attempt:
    """An attempt that nobody has made."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)


async def drain(broker: Broker, queue: Queue, message: Message) -> None:
    """Give a message back as a stopping receiver does: never processed, not counted as a failure."""
    token = LockToken(message.sequence_number, message.lock_token or b"")
    await settle_one(broker, queue, abandon(broker, queue, token, Abandonment(counted=False)))


@pytest.mark.behaviour("S2.3", "S2.27")
async def test_a_message_handed_out_twice_as_often_as_it_may_fail_is_not_handed_out_again(
    broker: Broker, queue: Queue
) -> None:
    poison, healthy = await sent(broker, queue, 2)
    for delivery in range(1, 2 * LIMIT + 1):
        (message,) = await receive(broker, queue, Wish())
        assert (message.sequence_number, message.delivery_count) == (poison, delivery)
        await drain(broker, queue, message)
    (message,) = await receive(broker, queue, Wish())
    assert message.sequence_number == healthy, "its place is taken by the next one at once"
    (buried,) = await broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert (buried.sequence_number, buried.dead_letter_reason) == (poison, LIMIT_REACHED)


@pytest.mark.behaviour("S2.3", "S2.27")
async def test_nor_is_it_to_a_receiver_that_makes_every_attempt_once(broker: Broker, queue: Queue) -> None:
    poison, healthy = await sent(broker, queue, 2)
    for delivery in range(1, 2 * LIMIT + 1):
        (message,) = (await receive_once(broker, queue, Wish(), attempt())).answer
        assert (message.sequence_number, message.delivery_count) == (poison, delivery)
        await drain(broker, queue, message)
    wish, one = Wish(most=2), attempt()
    once = await receive_once(broker, queue, wish, one)
    assert [message.sequence_number for message in once.answer] == [healthy]
    assert (await receive_once(broker, queue, wish, one)).answer == once.answer
    (buried,) = await broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert (buried.sequence_number, buried.dead_letter_reason) == (poison, LIMIT_REACHED)


@pytest.mark.behaviour("S2.3")
async def test_an_attempt_that_was_cut_before_the_message_was_set_aside_does_not_get_it_by_a_repeat(
    broker: Broker, queue: Queue
) -> None:
    await sent(broker, queue, 1)
    for _ in range(2 * LIMIT):
        (message,) = await receive(broker, queue, Wish())
        await drain(broker, queue, message)
    one = attempt()
    claim = Claim(queue.id, 1, queue.settings.lock_duration)
    assert (await broker.store.claim_once(claim, one)).answer
    assert (await receive_once(broker, queue, Wish(), one)).answer == []
    assert len(await broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)) == 1


@pytest.mark.behaviour("S2.21", "S2.27")
async def test_a_message_that_was_only_ever_given_back_is_set_aside_by_the_same_limit_and_can_be_redriven(
    broker: Broker, queue: Queue
) -> None:
    """Whether a receiver stops in order or because of the message, the server cannot tell; docs/behaviours.md says so."""
    (number,) = await sent(broker, queue, 1)
    for _ in range(2 * LIMIT):
        (message,) = await receive(broker, queue, Wish())
        assert message.failure_count == 0
        await drain(broker, queue, message)
    assert await receive(broker, queue, Wish()) == []
    row = Unlocked(number, queue.id, MessageState.DEAD_LETTERED)
    assert await broker.store.redrive([Redrive(row, queue.id)]) == [True]
    (message,) = await receive(broker, queue, Wish())
    assert (message.sequence_number, message.delivery_count, message.failure_count) == (number, 1, 0)


@pytest.mark.behaviour("S2.3")
async def test_the_dead_letter_queue_hands_out_as_often_as_it_takes(broker: Broker, queue: Queue) -> None:
    (number,) = await sent(broker, queue, 1)
    for _ in range(LIMIT):
        (message,) = await receive(broker, queue, Wish())
        token = LockToken(message.sequence_number, message.lock_token or b"")
        await settle_one(broker, queue, abandon(broker, queue, token, Abandonment()))
    for _ in range(3 * LIMIT):
        (message,) = await receive(broker, queue, Wish(source=MessageState.DEAD_LETTERED))
        assert message.sequence_number == number
        await drain(broker, queue, message)


@pytest.mark.behaviour("S2.24", "S2.28")
async def test_whoever_dies_with_several_messages_has_used_up_a_delivery_and_a_failure_of_each(
    broker: Broker, queue: Queue, clock: VirtualClock
) -> None:
    """The count stands in the claim's own transaction, so it is never lower than the truth, only perhaps higher."""
    numbers = await sent(broker, queue, 2)
    await receive(broker, queue, Wish(most=2))
    await clock.advance(LOCK_SECONDS)
    await expire_locks(broker)
    stored = await broker.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    assert [(m.sequence_number, m.delivery_count, m.failure_count) for m in stored] == [(n, 1, 1) for n in numbers]
