"""A work unit takes effect as a whole, even if rows change between its tries."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.transactions import SettlementsFailed
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, complete
from app.broker.settling.renew import renew
from app.broker.settling.settle import _FIRST_PAUSE_SECONDS, MAX_TRIES, settle_one
from app.broker.transactions.execute import UnitRequest, UnitSend, UnitSettlement, execute
from app.domain.instant import HOUR
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import (
    AlreadySettled,
    LockLost,
    MessageBusy,
    MessageTooLarge,
    QueueFull,
    QueueNotFound,
    Refusal,
)
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, LockToken, Outcome, Settled, token_of
from app.domain.work_unit import WorkUnit
from tests.broker.recorders import RecordingLockStore, RecordingNotifier
from tests.brokers import ChangedStore, OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_SECONDS = 30.0


async def held(broker: OpenBroker, queue: Queue, count: int = 1) -> list[LockToken]:
    """Send messages and receive them."""
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * count)
    return [
        token_of(message)
        for message in (await receive(broker.receiving, queue, ReceiveRequest(max_messages=count))).result
    ]


def unit(queue: Queue, *tokens: LockToken, sends: Any = ("invoices",)) -> UnitRequest:
    """Complete these deliveries and send a message to each of these queues."""
    return UnitRequest(
        [UnitSettlement(queue, complete(queue, token)) for token in tokens],
        [UnitSend(name, NewMessage(Envelope(""))) for name in sends],
    )


def before_try(broker: OpenBroker, number: int, happen: Callable[[], Awaitable[object]]) -> OpenBroker:
    """Return the broker with a store in which something happens just before this try of a unit."""
    tries = 0

    async def execute_after(work_unit: WorkUnit, attempt: Attempt | None) -> Any:
        nonlocal tries
        tries += 1
        if tries == number:
            await happen()
        return await broker.store.execute(work_unit, attempt)

    store: Any = ChangedStore(broker.store, execute=execute_after)
    return replace(broker, store=store)


async def depth(broker: OpenBroker, name: str = "invoices") -> int:
    """Return the number of messages in a queue that may not exist."""
    queue = await broker.store.queues.by_name(name)
    return 0 if queue is None else await broker.store.queues.total(queue.id)


async def test_a_lock_that_was_renewed_meanwhile_is_settled(broker: OpenBroker, queue: Queue) -> None:
    renewed, other = await held(broker, queue, 2)
    changed = before_try(broker, 1, lambda: renew(broker.settling, queue, renewed))
    once = await execute(changed.transactions, unit(queue, renewed, other), None)
    assert once.result.settled == [
        Settled(token.sequence_number, Outcome.COMPLETED, None) for token in (renewed, other)
    ]
    assert await depth(broker) == 1


@pytest.mark.parametrize("is_renewed", [False, True])
async def test_a_message_of_a_group_is_settled_and_the_next_one_follows(broker: OpenBroker, is_renewed: bool) -> None:
    fifo, _ = await broker.store.queues.create("fifo", QueueSettings(group_in_flight=1))
    await send(broker.sending, fifo.name, [NewMessage(Envelope("", group_id="a"))] * 2)
    (message,) = (await receive(broker.receiving, fifo, ReceiveRequest(max_messages=2))).result
    if is_renewed:
        await renew(broker.settling, fifo, token_of(message))
    await execute(broker.transactions, unit(fifo, token_of(message)), None)
    assert len((await receive(broker.receiving, fifo, ReceiveRequest(max_messages=2))).result) == 1


async def test_the_records_of_renewed_locks_are_deleted(broker: OpenBroker, queue: Queue) -> None:
    renewed, other = await held(broker, queue, 2)
    await renew(broker.settling, queue, renewed)
    recording = RecordingLockStore(broker.lock_store)
    locks: Any = recording
    await execute(replace(broker, lock_store=locks).transactions, unit(queue, other, renewed), None)
    assert recording.dropped == [(renewed, MAX_GENERATION)]


async def test_a_renewed_lock_that_has_expired_refuses_the_unit(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    lost, other = await held(broker, queue, 2)
    await renew(broker.settling, queue, lost)
    await clock.advance(LOCK_SECONDS - 1)
    await renew(broker.settling, queue, other)
    await clock.advance(2)
    with pytest.raises(LockLost) as refused:
        await execute(broker.transactions, unit(queue, other, lost), None)
    assert [fault.pointer for fault in refused.value.field_errors] == ["/settlements/1"]
    assert await depth(broker) == 0
    (still_held,) = await broker.store.locked_messages([other])
    assert still_held is not None


@pytest.mark.parametrize("number", [1, 2])
async def test_a_delivery_that_is_settled_meanwhile_refuses_the_unit(
    broker: OpenBroker, queue: Queue, number: int
) -> None:
    first, second = await held(broker, queue, 2)
    await renew(broker.settling, queue, first)  # so that there is a second try
    changed = before_try(broker, number, lambda: settle_one(broker.settling, queue, complete(queue, second)))
    with pytest.raises(AlreadySettled):
        await execute(changed.transactions, unit(queue, first, second), None)
    assert await depth(broker) == 0


async def test_an_abandon_of_a_delivery_that_has_ended_refuses_the_unit(broker: OpenBroker, queue: Queue) -> None:
    first, ended = await held(broker, queue, 2)
    await settle_one(broker.settling, queue, abandon(queue, ended, Abandonment()))
    settlements = [
        UnitSettlement(queue, complete(queue, first)),
        UnitSettlement(queue, abandon(queue, ended, Abandonment())),
    ]
    with pytest.raises(AlreadySettled) as refused:
        await execute(broker.transactions, UnitRequest(settlements), None)
    assert [fault.pointer for fault in refused.value.field_errors] == ["/settlements/1"]


async def test_a_row_that_another_request_holds_is_tried_again_for_about_a_second(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    (token,) = await held(broker, queue)
    started_at, tries = clock.monotonic(), 0

    async def fail(_work_unit: WorkUnit, _attempt: Attempt | None) -> Any:
        nonlocal tries
        tries += 1
        raise SettlementsFailed(frozenset([token]))

    store: Any = ChangedStore(broker.store, execute=fail)
    with pytest.raises(MessageBusy):
        await run_advancing(clock, execute(replace(broker, store=store).transactions, unit(queue, token), None))
    assert tries == MAX_TRIES
    waited = _FIRST_PAUSE_SECONDS * (2 ** (MAX_TRIES - 2) - 1)
    assert clock.monotonic() - started_at == pytest.approx(waited, rel=0.05)


async def test_a_queue_that_is_made_again_meanwhile_gets_the_message(broker: OpenBroker, queue: Queue) -> None:
    await broker.queue_cache.by_name_for_send("invoices")

    async def make_again() -> None:
        stale = await broker.store.queues.by_name("invoices")
        assert stale is not None
        await broker.store.queues.delete(stale)
        await broker.store.queues.create("invoices", QueueSettings())

    await execute(before_try(broker, 1, make_again).transactions, unit(queue), None)
    assert await depth(broker) == 1


async def test_a_queue_that_is_deleted_meanwhile_refuses_the_unit(clock: VirtualClock) -> None:
    async with sqlite_broker("sqlite://", clock, auto_create=False) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        invoices, _ = await broker.store.queues.create("invoices", QueueSettings())
        (token,) = await held(broker, queue)
        changed = before_try(broker, 1, lambda: broker.store.queues.delete(invoices))
        with pytest.raises(QueueNotFound):
            await execute(changed.transactions, unit(queue, token), None)
        (still_held,) = await broker.store.locked_messages([token])
        assert still_held is not None


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (QueueSettings(max_messages=1), QueueFull),
        (QueueSettings(max_message_bytes=1), MessageTooLarge),
    ],
)
async def test_messages_of_one_queue_count_together(
    broker: OpenBroker, queue: Queue, settings: QueueSettings, refusal: type[Refusal]
) -> None:
    (token,) = await held(broker, queue)
    await broker.store.queues.create("small", settings)
    sends = [UnitSend(name, NewMessage(Envelope(""), b"body")) for name in ("small", "orders", "small")]
    with pytest.raises(refusal):
        await execute(broker.transactions, UnitRequest(unit(queue, token).settlements, sends), None)
    assert await depth(broker, "small") == 0
    assert await depth(broker, "orders") == 1


async def test_each_receipt_belongs_to_its_message(broker: OpenBroker, queue: Queue) -> None:
    sends = [UnitSend(name, NewMessage(Envelope(f"{name}-{number}"))) for number in range(3) for name in ("a", "b")]
    once = await execute(broker.transactions, UnitRequest(sends=sends), None)
    assert [receipt.message_id for receipt in once.result.receipts] == [
        entry.new_message.envelope.message_id for entry in sends
    ]


async def test_each_result_belongs_to_its_settlement(broker: OpenBroker, queue: Queue) -> None:
    others, _ = await broker.store.queues.create("others", QueueSettings())
    tokens = [*await held(broker, queue, 2), *await held(broker, others, 2)]
    mixed = [
        UnitSettlement(queue, complete(queue, tokens[0])),
        UnitSettlement(others, abandon(others, tokens[2], Abandonment())),
        UnitSettlement(queue, abandon(queue, tokens[1], Abandonment())),
        UnitSettlement(others, complete(others, tokens[3])),
    ]
    settled = (await execute(broker.transactions, UnitRequest(mixed), None)).result.settled
    assert [one.sequence_number for one in settled] == [tokens[index].sequence_number for index in (0, 2, 1, 3)]
    assert [one.state for one in settled] == [None, MessageState.AVAILABLE, MessageState.AVAILABLE, None]


async def test_a_repeat_notifies_no_receiver_again(broker: OpenBroker, queue: Queue) -> None:
    recording = RecordingNotifier()
    notifier: Any = recording
    changed = replace(broker, notifier=notifier)
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    (token,) = await held(broker, queue)
    request = UnitRequest(
        [UnitSettlement(queue, abandon(queue, token, Abandonment()))], [UnitSend("orders", NewMessage(Envelope("")))]
    )
    for is_repeat in (False, True):
        recording.notified.clear()
        assert (await execute(changed.transactions, request, attempt)).replayed is is_repeat
        assert recording.notified == ([] if is_repeat else [(queue.id, 1), (queue.id, 1)])


async def test_a_refusal_without_an_earlier_result_is_raised(broker: OpenBroker, queue: Queue) -> None:
    with pytest.raises(Refusal):
        await execute(broker.transactions, unit(queue, LockToken(1, b"?" * 16)), Attempt(b"k" * 32, b"f" * 32, HOUR))


async def test_one_of_many_units_for_a_delivery_takes_effect(broker: OpenBroker, queue: Queue) -> None:
    (token,) = await held(broker, queue)
    units = (execute(broker.transactions, unit(queue, token), None) for _ in range(8))
    results = await asyncio.gather(*units, return_exceptions=True)
    assert sum(isinstance(result, AlreadySettled) for result in results) == 7
    assert await depth(broker) == 1
