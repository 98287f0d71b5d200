"""A purge runs in batches and removes locked messages only if `locked` is selected."""

from dataclasses import replace
from typing import Any, cast

from app.broker.administration.browse import read_named
from app.broker.administration.purge import purge
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.filtering.search_state import MAX_BATCH_SIZE
from app.broker.ports.lock_store import LockStore
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, token_of
from tests.broker.recorders import RecordingLockStore, RecordingNotifier
from tests.brokers import OpenBroker

ALL = MessageSelection([MessageState.AVAILABLE], MatchAll())


async def test_a_purge_with_a_timeout_of_zero_removes_one_batch(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * (MAX_BATCH_SIZE + 1))
    assert await purge(broker.administration, queue, ALL, timeout_seconds=0) == MAX_BATCH_SIZE
    assert await purge(broker.administration, queue, ALL, timeout_seconds=0) == 1


async def test_purged_messages_are_counted(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 3)
    await receive(broker.receiving, queue, ReceiveRequest(max_messages=2))
    selection = MessageSelection([MessageState.AVAILABLE, MessageState.LOCKED], MatchAll())
    assert await purge(broker.administration, queue, selection) == 3
    counters: Any = broker.counters
    assert counters["messages_purged"] == 3


async def test_a_purge_of_locked_messages_clears_queue_caches_and_lock_records(
    broker: OpenBroker, queue: Queue
) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (locked_message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    cached = await broker.queue_cache.by_name(queue.name)
    processes, records = RecordingNotifier(), RecordingLockStore(broker.lock_store)
    broker = replace(broker, notifier=processes, lock_store=cast("LockStore", records))
    locked = MessageSelection([MessageState.LOCKED], MatchAll())
    assert await purge(broker.administration, queue, locked) == 1
    assert processes.changes_of_queues == 1
    assert records.dropped == [(token_of(locked_message), MAX_GENERATION)]
    assert (await broker.queue_cache.by_name(queue.name)).lock_version > cached.lock_version
    assert await purge(broker.administration, queue, locked) == 0
    assert processes.changes_of_queues == 1, "no lock was removed"


async def test_a_purge_of_numbers_removes_those_that_are_selected(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 5)
    numbers = [message.sequence_number for message in await read_named(broker.administration, queue, range(1, 9))]
    assert len(numbers) == 5
    (locked,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    selection = replace(ALL, numbers=[locked.sequence_number, *numbers[3:], 99])
    assert await purge(broker.administration, queue, selection) == 2
    left = await read_named(broker.administration, queue, numbers)
    assert [message.sequence_number for message in left] == numbers[:3]
