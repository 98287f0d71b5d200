"""A closed queue hands out nothing, and a receive reserves room for what it may bring."""

from dataclasses import replace
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.defer import defer
from app.broker.filters import CelFilter
from app.broker.ports import Attempt
from app.broker.receive import ReceiveRequest, check_receive, receive, receive_and_delete, receive_once
from app.broker.send import send
from app.broker.settle import settle_one
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import KeyReused, Overloaded, ReceiveDisabled
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.byte_budget import ByteBudget, Reservation
from tests.brokers import ANSWER_BYTES

ATTEMPT = Attempt(b"k" * 32, b"f" * 32, HOUR)
MAX_MESSAGE_BYTES = 1000


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    settings = QueueSettings(lock_duration=30 * SECOND, max_message_bytes=MAX_MESSAGE_BYTES)
    queue, _ = await broker.store.queues.create("orders", settings)
    await send(broker, queue, [NewMessage(Envelope(""))])
    return queue


@pytest.mark.parametrize("status", [QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED])
async def test_a_closed_queue_hands_out_nothing(broker: Broker, queue: Queue, status: QueueStatus) -> None:
    closed = replace(queue, settings=replace(queue.settings, status=status))
    for receiving in (
        receive(broker, closed, ReceiveRequest()),
        receive(broker, closed, ReceiveRequest(message_filter=CelFilter("true"))),
        receive_once(broker, closed, ReceiveRequest(), ATTEMPT),
        check_receive(broker, closed, None),
    ):
        with pytest.raises(ReceiveDisabled):
            await receiving
    assert len(await receive(broker, queue, ReceiveRequest())) == 1


async def test_a_key_that_was_used_for_something_else_is_refused_beforehand(broker: Broker, queue: Queue) -> None:
    await check_receive(broker, queue, None)
    await check_receive(broker, queue, ATTEMPT)
    await receive_once(broker, queue, ReceiveRequest(), ATTEMPT)
    await check_receive(broker, queue, ATTEMPT)
    with pytest.raises(KeyReused):
        await check_receive(broker, queue, replace(ATTEMPT, fingerprint=b"g" * 32))


@pytest.mark.parametrize(("asked", "lasts"), [(None, 30 * SECOND), (MINUTE, MINUTE)], ids=["of the queue", "asked for"])
async def test_a_lock_lasts_as_long_as_the_queue_or_the_receiver_says(
    broker: Broker, queue: Queue, asked: int | None, lasts: int
) -> None:
    (message,) = await receive(broker, queue, ReceiveRequest(lock_duration=asked))
    assert message.lock_remaining(broker.clock.monotonic()) == lasts


async def test_deferred_messages_are_received_by_number_and_not_waited_for(broker: Broker, queue: Queue) -> None:
    (message,) = await receive(broker, queue, ReceiveRequest())
    await settle_one(broker, queue, defer(queue, token_of(message)))
    wish = ReceiveRequest(sequence_numbers=[message.sequence_number], wait_seconds=50)
    assert [one.sequence_number for one in await receive(broker, queue, wish)] == [message.sequence_number]
    assert await receive(broker, queue, wish) == [], "the clock stands still"


async def test_a_message_that_is_received_and_deleted_has_no_lock_and_is_gone(broker: Broker, queue: Queue) -> None:
    (message,) = await receive_and_delete(broker, queue, ReceiveRequest(max_messages=2))
    assert (message.lock_token, message.locked_until) == (None, None)
    assert await broker.store.read(queue.id, message.sequence_number) is None


class RecordingByteBudget(ByteBudget):
    """A budget that notes for how many bytes room was asked."""

    def __init__(self) -> None:
        super().__init__(ANSWER_BYTES, Overloaded)
        self.requested: list[int] = []

    def reserve(self, *amount: Any) -> Reservation:
        self.requested += amount
        return super().reserve(*amount)


@pytest.mark.parametrize(("most", "messages"), [(1, 1), (3, 3), (1000, 100)])
async def test_a_receive_reserves_room_for_what_it_may_bring(
    broker: Broker, queue: Queue, most: int, messages: int
) -> None:
    each = MAX_MESSAGE_BYTES + MESSAGE_OVERHEAD_BYTES
    for take in (receive, lambda *asked: receive_once(*asked, ATTEMPT)):
        answers = RecordingByteBudget()
        await take(
            replace(broker, response_budget=answers, max_response_bytes=100 * each),
            queue,
            ReceiveRequest(max_messages=most),
        )
        assert answers.requested == [messages * each]
