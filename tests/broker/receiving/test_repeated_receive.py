"""A repeated receive with an Idempotency-Key returns the messages that the first one locked in the same queue."""

from app.broker.administration.queues import delete_queue, put_queue
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.instant import HOUR, SECOND
from app.domain.message import Envelope
from app.domain.queue import QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from tests.brokers import sqlite_broker
from tests.virtual_clock import VirtualClock

LOCK_DURATION = 30 * SECOND
ATTEMPT = Attempt(b"k" * 32, b"p" * 32, HOUR)


async def test_a_repeat_does_not_return_messages_of_a_deleted_queue() -> None:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        deleted, _ = await put_queue(broker.administration, "orders", QueueSettings())
        await send(broker.sending, deleted.name, [NewMessage(Envelope(""))])
        assert len((await receive(broker.receiving, deleted, ReceiveRequest(), ATTEMPT)).result) == 1
        await delete_queue(broker.administration, deleted)
        queue, _ = await put_queue(broker.administration, "orders", QueueSettings())
        repeat = await receive(broker.receiving, queue, ReceiveRequest(), ATTEMPT)
    assert repeat.replayed
    assert repeat.result == []


async def test_a_repeat_returns_the_same_lock_with_its_remaining_time() -> None:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await put_queue(broker.administration, "orders", QueueSettings(lock_duration=LOCK_DURATION))
        await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
        (first,) = (await receive(broker.receiving, queue, ReceiveRequest(), ATTEMPT)).result
        await clock.advance(10)
        (again,) = (await receive(broker.receiving, queue, ReceiveRequest(), ATTEMPT)).result
        assert token_of(again) == token_of(first)
        assert again.lock_remaining(clock.monotonic()) == LOCK_DURATION - 10 * SECOND, "a repeat does not renew it"
