"""A receive that is repeated under its Idempotency-Key answers what the first one locked in this very queue."""

from app.broker.ports import Attempt
from app.broker.queues import delete_queue, put_queue
from app.broker.receive import Wish, receive_once
from app.broker.send import send
from app.domain.instant import HOUR, SECOND
from app.domain.message import Envelope
from app.domain.queue import QueueSettings
from app.domain.sending import Letter
from app.domain.settlement import token_of
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker

LOCK = 30 * SECOND
ATTEMPT = Attempt(b"k" * 32, b"p" * 32, HOUR)


async def test_a_repeat_does_not_answer_messages_of_a_deleted_queue() -> None:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        deleted, _ = await put_queue(broker, "orders", QueueSettings())
        await send(broker, deleted, [Letter(Envelope(""))])
        assert len((await receive_once(broker, deleted, Wish(), ATTEMPT)).answer) == 1
        await delete_queue(broker, deleted)
        queue, _ = await put_queue(broker, "orders", QueueSettings())
        repeat = await receive_once(broker, queue, Wish(), ATTEMPT)
    assert repeat.replayed
    assert repeat.answer == []


async def test_a_repeat_answers_the_same_lock_with_what_is_left_of_it() -> None:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await put_queue(broker, "orders", QueueSettings(lock_duration=LOCK))
        await send(broker, queue, [Letter(Envelope(""))])
        (first,) = (await receive_once(broker, queue, Wish(), ATTEMPT)).answer
        await clock.advance(10)
        (again,) = (await receive_once(broker, queue, Wish(), ATTEMPT)).answer
        assert token_of(again) == token_of(first)
        assert again.lock_remaining(clock.monotonic()) == LOCK - 10 * SECOND, "it is not renewed by that"
