"""Nothing acknowledged is stored where no queue is: not by an id that was remembered, and not beside a deletion."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.filters import Everything
from app.broker.ports import Attempt, QueueGone, Redrive, Store, Unlocked
from app.broker.purge import Choice, redrive
from app.broker.send import post, send, send_each, send_once
from app.domain.instant import HOUR, MINUTE
from app.domain.message import Envelope, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from app.domain.sending import Letter
from app.domain.settlement import Outcome
from app.store import mysql_sending, postgresql_sending
from app.store.mysql import MysqlStore
from app.store.postgresql import PostgresStore
from tests.clock import VirtualClock
from tests.contract.subject import Subject, abandonment, claim, completion, draft, token
from tests.rooms import assemble

LETTER = Letter(Envelope(""))


def attempt() -> Attempt:
    """An attempt that nobody has made."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)


@pytest.fixture
async def gone(subject: Subject) -> Queue:
    """A queue that was deleted."""
    queue = await subject.queue()
    assert await subject.store.queues.delete(queue)
    return queue


# ---- the store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_nothing_is_stored_in_a_queue_that_is_gone(
    subject: Subject, queue: Queue, gone: Queue, window: int
) -> None:
    lost = draft(gone, duplicate_window=window)
    for drafts in ([lost], [draft(queue, duplicate_window=window), lost]):
        with pytest.raises(QueueGone):
            await subject.store.send(drafts)
        with pytest.raises(QueueGone):
            await subject.store.send_once(drafts, attempt())
    assert await subject.execute("SELECT sequence_number FROM message") == []
    assert await subject.execute("SELECT message_id FROM recent_id WHERE remove_at > 0") == []
    assert await subject.execute("SELECT queue FROM accepted_count") == []
    assert await subject.execute("SELECT attempt_key FROM attempt") == []


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_a_queue_that_is_gone_fails_no_neighbour(
    subject: Subject, queue: Queue, gone: Queue, window: int
) -> None:
    """Callers at the same moment share a statement."""
    sends = [subject.store.send([draft(one, duplicate_window=window)]) for one in (queue, gone) * 10]
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(answer, QueueGone) for answer in answers] == [False, True] * 10
    assert len(await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100)) == 10
    assert await subject.execute(f"SELECT sequence_number FROM message WHERE queue_id = {gone.id}") == []


async def dead_letter(subject: Subject, queue: Queue) -> Unlocked:
    """Send a message and dead-letter it."""
    message = await subject.locked(queue)
    assert await subject.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)]) == [True]
    return Unlocked(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)


async def test_nothing_is_redriven_into_a_queue_that_is_gone_or_out_of_one(
    subject: Subject, queue: Queue, gone: Queue
) -> None:
    row = await dead_letter(subject, queue)
    with pytest.raises(QueueGone):
        await subject.store.redrive([Redrive(row, gone.id)])
    (message,) = await subject.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert message.sequence_number == row.sequence_number
    other = await subject.queue()
    assert await subject.store.queues.delete(queue)
    assert await subject.store.redrive([Redrive(row, other.id)]) == [False]
    assert await subject.execute(f"SELECT sequence_number FROM message WHERE queue_id = {other.id}") == []


# ---- a replica that remembers the id ---------------------------------------------------------------------------------


@pytest.fixture
async def broker(subject: Subject) -> AsyncIterator[Broker]:
    """A process that makes no queues by itself, over the store."""
    broker = assemble(subject.store, VirtualClock(), auto_create=False)
    yield broker
    await broker.outbox.close()
    await broker.catalogue.close()


async def remembered(broker: Broker, store: Store) -> Queue:
    """A queue that the process has looked up and another process has deleted since."""
    queue, _ = await store.queues.create(f"queue-{secrets.token_hex(4)}", QueueSettings())
    assert await broker.catalogue.named(queue.name) == queue
    assert await store.queues.delete(queue)
    return queue


async def made_again(broker: Broker, store: Store) -> tuple[Queue, Queue]:
    """A queue that the process remembers, and the one that has its name now."""
    before = await remembered(broker, store)
    after, _ = await store.queues.create(before.name, QueueSettings())
    return before, after


async def there(subject: Subject, queue: Queue) -> int:
    """How many messages can be received from a queue."""
    return len(await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100))


async def test_a_send_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    before, after = await made_again(broker, subject.store)
    await send(broker, before, [LETTER, LETTER])
    assert await there(subject, after) == 2
    before, after = await made_again(broker, subject.store)
    assert len(await send_each(broker, before, [LETTER])) == 1
    assert await there(subject, after) == 1


async def test_an_attempt_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    before, after = await made_again(broker, subject.store)
    once = attempt()
    for replayed in (False, True):
        assert (await send_once(broker, before.name, [LETTER], once)).replayed is replayed
    assert await there(subject, after) == 1


async def test_volatile_messages_go_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    other = await subject.queue()
    before, after = await made_again(broker, subject.store)
    for queue in (before, other, before):
        await post(broker, queue, LETTER)
    await broker.outbox.close()
    assert (await there(subject, after), await there(subject, other)) == (2, 1)


async def test_a_redrive_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker, queue: Queue) -> None:
    before, after = await made_again(broker, subject.store)
    await dead_letter(subject, queue)
    choice = Choice([MessageState.DEAD_LETTERED], Everything())
    assert await redrive(broker, queue, before, choice, None) == 1
    assert await there(subject, after) == 1


async def test_a_send_into_a_queue_that_is_gone_is_told_so(subject: Subject, broker: Broker, queue: Queue) -> None:
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send(broker, before, [LETTER])
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send_each(broker, before, [LETTER])
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send_once(broker, before.name, [LETTER], attempt())
    before = await remembered(broker, subject.store)
    await dead_letter(subject, queue)
    with pytest.raises(QueueNotFound, match=before.name):
        await redrive(broker, queue, before, Choice([MessageState.DEAD_LETTERED], Everything()), None)
    assert await subject.execute("SELECT sequence_number FROM message WHERE state = 1") == []


# ---- what a deleted queue held ---------------------------------------------------------------------------------------


async def archived(subject: Subject) -> list[tuple[object, ...]]:
    """The archive's messages: their number, queue, outcome, and how long each is kept."""
    kept = "sequence_number, queue, outcome, remove_at - settled_at"
    return await subject.execute(f"SELECT {kept} FROM archive ORDER BY sequence_number")


async def pass_over(*stores: Store) -> None:
    """Let passes of these processes archive what is left of deleted queues."""
    while sum(await asyncio.gather(*(store.forget(2) for store in stores))):
        pass


async def every_state(subject: Subject, queue: Queue) -> list[int]:
    """A message in each state, the locked one last; their numbers."""
    (dead, deferred) = (await subject.locked(queue), await subject.locked(queue))
    for message, state in ((dead, MessageState.DEAD_LETTERED), (deferred, MessageState.DEFERRED)):
        assert await subject.store.move([abandonment(message, state=state)]) == [True]
    locked = await subject.locked(queue)
    others = [*await subject.send(queue, b"1"), *await subject.send(queue, b"2", delay=HOUR)]
    return [dead.sequence_number, deferred.sequence_number, locked.sequence_number, *others]


async def test_the_archive_knows_every_message_of_a_deleted_queue(subject: Subject, stores: list[Store]) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=3 * HOUR))
    numbers = await every_state(subject, queue)
    assert await subject.store.queues.delete(queue)
    await pass_over(*stores)
    assert await subject.execute("SELECT sequence_number FROM message") == []
    assert await archived(subject) == [(number, queue.name, "purged", 3 * HOUR) for number in sorted(numbers)]
    digests = await subject.execute("SELECT COUNT(content_digest) FROM archive")
    assert digests == [(5,)]


async def test_a_deleted_queue_without_an_archive_leaves_counts(subject: Subject) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=0))
    await every_state(subject, queue)
    assert await subject.store.queues.delete(queue)
    await pass_over(subject.store)
    assert await archived(subject) == []
    found = await subject.execute("SELECT queue, SUM(accepted), SUM(unarchived) FROM accepted_count GROUP BY queue")
    assert [(name, int(accepted), int(gone)) for name, accepted, gone in found] == [(queue.name, 5, 5)]


async def test_the_holder_of_a_lock_of_a_deleted_queue_finds_that_it_was_purged(subject: Subject) -> None:
    queue = await subject.queue()
    message = await subject.locked(queue)
    assert await subject.store.queues.delete(queue)
    await pass_over(subject.store)
    assert await subject.store.remove([completion(queue, message)]) == [False]
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert (stone.queue_id, stone.outcome) == (queue.id, Outcome.PURGED)


async def test_a_queue_that_an_older_server_deleted_has_the_name_of_its_counts(subject: Subject) -> None:
    queue = await subject.queue()
    (number,) = await subject.send(queue, b"body")
    await subject.execute(f"DELETE FROM queue WHERE id = {queue.id}")
    await pass_over(subject.store)
    assert await archived(subject) == [(number, queue.name, "purged", QueueSettings().archive_retention)]


async def test_messages_of_a_queue_that_nothing_is_known_of_are_archived_without_a_name(subject: Subject) -> None:
    queue = await subject.queue()
    (number,) = await subject.send(queue, b"body")
    for table in ("queue", "accepted_count"):
        await subject.execute(f"DELETE FROM {table}")
    await pass_over(subject.store)
    assert await archived(subject) == [(number, "", "purged", QueueSettings().archive_retention)]


async def test_what_is_known_of_a_deleted_queue_is_kept_as_long_as_a_message_of_it(subject: Subject) -> None:
    queue = await subject.queue()
    await subject.send(queue, b"body")
    assert await subject.store.queues.delete(queue)
    await pass_over(subject.store)
    await subject.pass_time(23 * 3600)
    await subject.store.forget(1)
    assert await subject.execute("SELECT name FROM deleted_queue") == [(queue.name,)]
    await subject.pass_time(2 * 3600)
    await subject.store.forget(1)
    assert await subject.execute("SELECT name FROM deleted_queue") == []


async def send_under_way(store: Store, queue: Queue, meanwhile: Callable[[], Awaitable[None]]) -> list[Receipt]:
    """Send, with something done between the statement that stores and its commit."""
    assert isinstance(store, PostgresStore | MysqlStore)

    async def work(session: Any) -> list[Receipt]:
        if isinstance(store, PostgresStore):
            receipts = await postgresql_sending.send(session, [draft(queue)])
        else:
            receipts = await mysql_sending.store(session, [draft(queue)], session.ask)
        await meanwhile()
        return receipts

    return await store._transact(work)


@pytest.mark.parametrize("subject", ["postgresql", "mariadb"], indirect=True)
async def test_a_send_that_commits_after_its_queue_is_deleted_is_archived(
    subject: Subject, queue: Queue, stores: list[Store]
) -> None:
    async def delete() -> None:
        assert await stores[1].queues.delete(queue)
        await pass_over(stores[1])

    (receipt,) = await send_under_way(subject.store, queue, delete)
    await pass_over(stores[1])
    assert await archived(subject) == [
        (receipt.sequence_number, queue.name, "purged", queue.settings.archive_retention)
    ]


@pytest.mark.behaviour("S2.10")
async def test_what_is_sent_beside_a_deletion_is_refused_or_accounted_for(
    subject: Subject, stores: list[Store]
) -> None:
    """Senders, receivers and redrives go on while their queue is deleted: what was acknowledged is in the archive."""
    source = await subject.queue()
    for _ in range(4):
        queue = await subject.queue()
        acknowledged: list[int] = []
        enough = asyncio.Event()

        async def work(place: int, queue: Queue, acknowledged: list[int], enough: asyncio.Event) -> None:
            store, window = stores[place % len(stores)], MINUTE if place % 2 else 0
            while True:
                try:
                    receipts = await store.send([draft(queue, duplicate_window=window) for _ in range(3)])
                    acknowledged += [receipt.sequence_number for receipt in receipts]
                    if len(acknowledged) > 30:
                        enough.set()
                    row = await dead_letter(subject, source) if place == 0 else None
                    if row and await store.redrive([Redrive(row, queue.id)]) == [True]:
                        acknowledged.append(row.sequence_number)
                except QueueGone:
                    return
                await subject.store.claim(claim(queue, 1))

        working = [asyncio.create_task(work(place, queue, acknowledged, enough)) for place in range(6)]
        await enough.wait()
        assert await subject.store.queues.delete(queue)
        await asyncio.gather(*working)
        await pass_over(*stores)
        mine = f"queue_id = {queue.id} AND outcome = 'purged'"
        purged = await subject.execute(f"SELECT sequence_number FROM archive WHERE {mine}")
        assert sorted(number for (number,) in purged) == sorted(acknowledged)
        total = "SUM(accepted) + SUM(moved)"
        ((counted,),) = await subject.execute(f"SELECT {total} FROM accepted_count WHERE queue_id = {queue.id}")
        assert int(counted) == len(acknowledged)
