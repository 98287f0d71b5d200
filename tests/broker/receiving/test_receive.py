"""A disabled queue refuses receives, and a receive reserves the bytes that it may return."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.filtering.filters import CelFilter
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, check_receive, receive
from app.broker.response_limits import ResponseLimits
from app.broker.sending.send import send
from app.broker.settling.outcomes import defer
from app.broker.settling.settle import settle_one
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import KeyReused, Overloaded, ReceiveDisabled, StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import Removal, token_of
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.byte_budget import ByteBudget, Reservation
from tests.brokers import ANSWER_BYTES, ChangedStore, OpenBroker, result_of

ATTEMPT = Attempt(b"k" * 32, b"f" * 32, HOUR)
MAX_MESSAGE_BYTES = 1000


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    settings = QueueSettings(lock_duration=30 * SECOND, max_message_bytes=MAX_MESSAGE_BYTES)
    queue, _ = await broker.store.queues.create("orders", settings)
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    return queue


@pytest.mark.parametrize("status", [QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED])
async def test_a_queue_with_receives_disabled_refuses_receives(
    broker: OpenBroker, queue: Queue, status: QueueStatus
) -> None:
    closed = replace(queue, settings=replace(queue.settings, status=status))
    for receiving in (
        result_of(receive(broker.receiving, closed, ReceiveRequest())),
        result_of(receive(broker.receiving, closed, ReceiveRequest(message_filter=CelFilter("true")))),
        receive(broker.receiving, closed, ReceiveRequest(), ATTEMPT),
        check_receive(broker.receiving.store, closed, ReceiveRequest(), None),
    ):
        with pytest.raises(ReceiveDisabled):
            await receiving
    assert len((await receive(broker.receiving, queue, ReceiveRequest())).result) == 1


async def test_a_reused_idempotency_key_is_refused_before_other_work(broker: OpenBroker, queue: Queue) -> None:
    await check_receive(broker.receiving.store, queue, ReceiveRequest(), None)
    await check_receive(broker.receiving.store, queue, ReceiveRequest(), ATTEMPT)
    await receive(broker.receiving, queue, ReceiveRequest(), ATTEMPT)
    await check_receive(broker.receiving.store, queue, ReceiveRequest(), ATTEMPT)
    with pytest.raises(KeyReused):
        await check_receive(broker.receiving.store, queue, ReceiveRequest(), replace(ATTEMPT, fingerprint=b"g" * 32))


@pytest.mark.parametrize(
    ("requested", "lasts"), [(None, 30 * SECOND), (MINUTE, MINUTE)], ids=["of the queue", "requested"]
)
async def test_a_lock_lasts_for_the_duration_of_the_queue_or_the_request(
    broker: OpenBroker, queue: Queue, requested: int | None, lasts: int
) -> None:
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest(lock_duration=requested))).result
    assert message.lock_remaining(broker.clock.monotonic()) == lasts


async def test_a_receive_of_deferred_messages_does_not_wait(broker: OpenBroker, queue: Queue) -> None:
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, defer(queue, token_of(message)))
    request = ReceiveRequest(sequence_numbers=[message.sequence_number], wait_seconds=50)
    assert [received.sequence_number for received in (await receive(broker.receiving, queue, request)).result] == [
        message.sequence_number
    ]
    assert (await receive(broker.receiving, queue, request)).result == [], "the clock stands still"


async def test_receive_and_delete_returns_messages_without_locks_and_removes_them(
    broker: OpenBroker, queue: Queue
) -> None:
    (message,) = (
        await receive(broker.receiving, queue, ReceiveRequest(max_messages=2, mode=ReceiveMode.RECEIVE_AND_DELETE))
    ).result
    assert (message.lock_token, message.locked_until) == (None, None)
    assert await broker.store.read(queue.id, message.sequence_number) is None


async def _lose_the_answer(asking: asyncio.Task[Any] | None) -> None:
    """End the caller of a removal that is stored: its connection breaks, or its client is gone."""
    if asking is None:
        raise StoreUnavailable
    asking.cancel()
    await asyncio.Event().wait()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_messages_that_a_failed_receive_deleted_are_counted_as_lost(
    broker: OpenBroker, queue: Queue, is_cancelled: bool
) -> None:
    asking: list[asyncio.Task[Any]] = []

    async def remove(removals: Sequence[Removal]) -> list[bool]:
        await broker.store.remove(removals)
        await _lose_the_answer(asking[0] if is_cancelled else None)
        return []

    changed = replace(broker, store=ChangedStore(broker.store, remove=remove))
    asking.append(
        asyncio.create_task(
            result_of(receive(changed.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE)))
        )
    )
    await asyncio.wait(asking)
    assert asking[0].cancelled() == is_cancelled
    assert broker.counters["messages_lost"] == 1


async def test_messages_that_a_failed_receive_did_not_delete_come_back_and_are_not_lost(
    broker: OpenBroker, queue: Queue
) -> None:
    async def remove(_removals: Sequence[Removal]) -> list[bool]:
        raise StoreUnavailable

    changed = replace(broker, store=ChangedStore(broker.store, remove=remove))
    with pytest.raises(StoreUnavailable):
        await receive(changed.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE))
    assert broker.counters["messages_lost"] == 0
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    assert message.delivery_count == 1


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
    broker: OpenBroker, queue: Queue, max_messages: int, messages: int
) -> None:
    each = MAX_MESSAGE_BYTES + MESSAGE_OVERHEAD_BYTES
    for attempt in (None, ATTEMPT):
        answers = RecordingByteBudget()
        limited = replace(broker, response_limits=ResponseLimits(answers, 100 * each))
        await receive(limited.receiving, queue, ReceiveRequest(max_messages=max_messages), attempt)
        assert answers.requested == [messages * each]
