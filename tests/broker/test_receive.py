"""A disabled queue refuses receives, and a receive reserves the bytes that it may return."""

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
async def test_a_queue_with_receives_disabled_refuses_receives(
    broker: Broker, queue: Queue, status: QueueStatus
) -> None:
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


async def test_a_reused_idempotency_key_is_refused_before_other_work(broker: Broker, queue: Queue) -> None:
    await check_receive(broker, queue, None)
    await check_receive(broker, queue, ATTEMPT)
    await receive_once(broker, queue, ReceiveRequest(), ATTEMPT)
    await check_receive(broker, queue, ATTEMPT)
    with pytest.raises(KeyReused):
        await check_receive(broker, queue, replace(ATTEMPT, fingerprint=b"g" * 32))


@pytest.mark.parametrize(
    ("requested", "lasts"), [(None, 30 * SECOND), (MINUTE, MINUTE)], ids=["of the queue", "requested"]
)
async def test_a_lock_lasts_for_the_duration_of_the_queue_or_the_request(
    broker: Broker, queue: Queue, requested: int | None, lasts: int
) -> None:
    (message,) = await receive(broker, queue, ReceiveRequest(lock_duration=requested))
    assert message.lock_remaining(broker.clock.monotonic()) == lasts


async def test_a_receive_of_deferred_messages_does_not_wait(broker: Broker, queue: Queue) -> None:
    (message,) = await receive(broker, queue, ReceiveRequest())
    await settle_one(broker, queue, defer(queue, token_of(message)))
    request = ReceiveRequest(sequence_numbers=[message.sequence_number], wait_seconds=50)
    assert [one.sequence_number for one in await receive(broker, queue, request)] == [message.sequence_number]
    assert await receive(broker, queue, request) == [], "the clock stands still"


async def test_receive_and_delete_returns_messages_without_locks_and_removes_them(broker: Broker, queue: Queue) -> None:
    (message,) = await receive_and_delete(broker, queue, ReceiveRequest(max_messages=2))
    assert (message.lock_token, message.locked_until) == (None, None)
    assert await broker.store.read(queue.id, message.sequence_number) is None


class RecordingByteBudget(ByteBudget):
    """A budget that records the bytes of each reservation."""

    def __init__(self) -> None:
        super().__init__(ANSWER_BYTES, Overloaded)
        self.requested: list[int] = []

    def reserve(self, *amount: Any) -> Reservation:
        self.requested += amount
        return super().reserve(*amount)


@pytest.mark.parametrize(("max_messages", "messages"), [(1, 1), (3, 3), (1000, 100)])
async def test_a_receive_reserves_the_bytes_that_it_may_return(
    broker: Broker, queue: Queue, max_messages: int, messages: int
) -> None:
    each = MAX_MESSAGE_BYTES + MESSAGE_OVERHEAD_BYTES
    for take in (receive, lambda *requested: receive_once(*requested, ATTEMPT)):
        answers = RecordingByteBudget()
        await take(
            replace(broker, response_budget=answers, max_response_bytes=100 * each),
            queue,
            ReceiveRequest(max_messages=max_messages),
        )
        assert answers.requested == [messages * each]
