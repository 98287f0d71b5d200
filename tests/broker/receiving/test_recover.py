"""A recovery leaves no way to use an old token, and reserves the memory of its answer."""

from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.ports.lock_store import LockStore
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.receiving.recover import recover
from app.broker.sending.send import send
from app.broker.settling.renew import renew
from app.domain.instant import MINUTE, SECOND
from app.domain.message import Envelope, Message
from app.domain.queue import Queue, QueueSettings, QueueStatus, Redelivery
from app.domain.refusals import LockLost, LossCause, ReceiveDisabled
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, token_of
from tests.broker.recorders import RecordingLockStore, RecordingNotifier
from tests.brokers import OpenBroker

WORKER = ReceiveRequest(receiver_id="worker")


async def held_message(broker: OpenBroker, queue: Queue) -> Message:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, queue, WORKER)).result
    return message


async def test_a_recovery_of_a_renewed_lock_clears_queue_caches_and_lock_records(
    broker: OpenBroker, queue: Queue
) -> None:
    old = await held_message(broker, queue)
    await renew(broker.settling, queue, token_of(old))
    cached = await broker.queue_cache.by_name(queue.name)
    processes, records = RecordingNotifier(), RecordingLockStore(broker.lock_store)
    broker = replace(broker, notifier=processes, lock_store=cast("LockStore", records))
    assert len(await recover(broker.receiving, queue, "worker", 10)) == 1
    assert processes.changes_of_queues == 1
    assert records.dropped == [(token_of(old), MAX_GENERATION)]
    assert (await broker.queue_cache.by_name(queue.name)).lock_version > cached.lock_version
    assert len(await recover(broker.receiving, queue, "worker", 10)) == 1
    assert processes.changes_of_queues == 1, "no lock was renewed since"


async def test_the_holder_of_an_old_token_can_not_renew_it(broker: OpenBroker, queue: Queue) -> None:
    old = await held_message(broker, queue)
    (new,) = await recover(broker.receiving, queue, "worker", 10)
    with pytest.raises(LockLost) as lost:
        await renew(broker.settling, queue, token_of(old))
    assert lost.value.cause is LossCause.RECOVERED
    assert (await renew(broker.settling, queue, token_of(new))).duration == queue.settings.lock_duration


async def test_recovered_messages_are_counted_and_say_how_long_they_are_locked(
    broker: OpenBroker, queue: Queue
) -> None:
    await held_message(broker, queue)
    (message,) = await recover(broker.receiving, queue, "worker", 10)
    assert message.lock_remaining(broker.clock.monotonic()) == queue.settings.lock_duration
    counters: Any = broker.counters
    assert counters["messages_recovered"] == 1


async def test_a_lock_on_request_is_never_extended(broker: OpenBroker) -> None:
    settings = QueueSettings(redelivery=Redelivery.ON_REQUEST, lock_duration=MINUTE)
    queue, _ = await broker.store.queues.create("held", settings)
    held = await held_message(broker, queue)
    renewed = await renew(broker.settling, queue, token_of(held), 5 * SECOND)
    assert renewed.locked_until == held.locked_until
    (locked,) = await broker.store.locked_messages([token_of(held)])
    assert locked is not None
    assert (locked.lock_generation, locked.locked_until) == (0, held.locked_until)


async def test_a_queue_that_is_closed_to_receivers_recovers_nothing(broker: OpenBroker, queue: Queue) -> None:
    await held_message(broker, queue)
    closed = replace(queue, settings=QueueSettings(status=QueueStatus.RECEIVE_DISABLED))
    with pytest.raises(ReceiveDisabled):
        await recover(broker.receiving, closed, "worker", 10)
