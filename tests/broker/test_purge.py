"""A purge goes batch by batch, and takes locks only where it is told to."""

from dataclasses import replace
from typing import Any, cast

from app.broker.broker import Broker
from app.broker.filters import Everything
from app.broker.ports import Locks
from app.broker.purge import BATCH_SIZE, Choice, purge
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue
from app.domain.sending import Letter
from app.domain.settlement import HIGHEST_GENERATION, token_of
from tests.broker.others import Processes, Records

ALL = Choice([MessageState.AVAILABLE], Everything())


async def test_a_purge_without_patience_removes_one_batch(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * (BATCH_SIZE + 1))
    assert await purge(broker, queue, ALL, patience_seconds=0) == BATCH_SIZE
    assert await purge(broker, queue, ALL, patience_seconds=0) == 1


async def test_purged_messages_are_counted(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * 3)
    await receive(broker, queue, Wish(most=2))
    choice = Choice([MessageState.AVAILABLE, MessageState.LOCKED], Everything())
    assert await purge(broker, queue, choice) == 3
    tally: Any = broker.tally
    assert tally["messages_purged"] == 3


async def test_where_a_purge_takes_locks_every_process_forgets_them(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope(""))])
    (held,) = await receive(broker, queue, Wish())
    remembered = await broker.catalogue.named(queue.name)
    processes, records = Processes(), Records(broker.locks)
    broker = replace(broker, bells=processes, locks=cast("Locks", records))
    locked = Choice([MessageState.LOCKED], Everything())
    assert await purge(broker, queue, locked) == 1
    assert processes.changes_of_queues == 1
    assert records.dropped == [(token_of(held), HIGHEST_GENERATION)]
    assert (await broker.catalogue.named(queue.name)).lock_version > remembered.lock_version
    assert await purge(broker, queue, locked) == 0
    assert processes.changes_of_queues == 1, "no lock was taken"
