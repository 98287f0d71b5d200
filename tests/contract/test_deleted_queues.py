"""No acknowledged message is stored in a deleted queue: not through a cached id, and not during the deletion."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
from app.broker.ports.store import Store
from app.broker.sending.send import send, send_each, send_volatile
from app.domain.instant import HOUR, MINUTE
from app.domain.message import Envelope, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import Outcome
from app.store.mysql import sending as mysql_sending
from app.store.mysql.store import MysqlStore
from app.store.postgresql import sending as postgresql_sending
from app.store.postgresql.store import PostgresqlStore
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture, abandonment, claim, completion, draft, token
from tests.virtual_clock import VirtualClock

NEW_MESSAGE = NewMessage(Envelope(""))


def attempt() -> Attempt:
    """A new attempt."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)


@pytest.fixture
async def deleted_queue(store_fixture: StoreFixture) -> Queue:
    """A queue that was deleted."""
    queue = await store_fixture.queue()
    assert await store_fixture.store.queues.delete(queue)
    return queue


# ---- the store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_nothing_is_stored_in_a_deleted_queue(
    store_fixture: StoreFixture, queue: Queue, deleted_queue: Queue, window: int
) -> None:
    lost = draft(deleted_queue, duplicate_window=window)
    for drafts in ([lost], [draft(queue, duplicate_window=window), lost]):
        with pytest.raises(QueueGone):
            await store_fixture.store.send(drafts)
        with pytest.raises(QueueGone):
            await store_fixture.store.send_or_replay(drafts, attempt())
    assert await store_fixture.execute("SELECT sequence_number FROM message") == []
    assert await store_fixture.execute("SELECT message_id FROM recent_id WHERE remove_at > 0") == []
    assert await store_fixture.execute("SELECT queue FROM accepted_count") == []
    assert await store_fixture.execute("SELECT attempt_key FROM attempt") == []


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_a_deleted_queue_fails_no_other_send_of_the_statement(
    store_fixture: StoreFixture, queue: Queue, deleted_queue: Queue, window: int
) -> None:
    """Callers at the same moment share a statement."""
    sends = [
        store_fixture.store.send([draft(target, duplicate_window=window)]) for target in (queue, deleted_queue) * 10
    ]
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(answer, QueueGone) for answer in answers] == [False, True] * 10
    assert len(await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100)) == 10
    assert await store_fixture.execute(f"SELECT sequence_number FROM message WHERE queue_id = {deleted_queue.id}") == []


async def dead_letter(store_fixture: StoreFixture, queue: Queue) -> UnlockedRow:
    """Send a message and dead-letter it."""
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)]) == [True]
    return UnlockedRow(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)


async def test_nothing_is_redriven_into_or_out_of_a_deleted_queue(
    store_fixture: StoreFixture, queue: Queue, deleted_queue: Queue
) -> None:
    row = await dead_letter(store_fixture, queue)
    with pytest.raises(QueueGone):
        await store_fixture.store.redrive([Redrive(row, deleted_queue.id)])
    (message,) = await store_fixture.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert message.sequence_number == row.sequence_number
    other = await store_fixture.queue()
    assert await store_fixture.store.queues.delete(queue)
    assert await store_fixture.store.redrive([Redrive(row, other.id)]) == [False]
    assert await store_fixture.execute(f"SELECT sequence_number FROM message WHERE queue_id = {other.id}") == []


# ---- a replica with a cached id --------------------------------------------------------------------------------------


@pytest.fixture
async def broker(store_fixture: StoreFixture) -> AsyncIterator[OpenBroker]:
    """A process that does not create queues automatically, over the store."""
    broker = build_broker(store_fixture.store, VirtualClock(), auto_create=False)
    yield broker
    await broker.volatile_buffer.close()
    await broker.queue_cache.close()


async def cached_queue(broker: OpenBroker, store: Store) -> Queue:
    """A queue that this process has cached and another process has deleted since."""
    queue, _ = await store.queues.create(f"queue-{secrets.token_hex(4)}", QueueSettings())
    assert await broker.queue_cache.by_name(queue.name) == queue
    assert await store.queues.delete(queue)
    return queue


async def recreated(broker: OpenBroker, store: Store) -> tuple[Queue, Queue]:
    """A queue that the process has cached, and the queue that has its name now."""
    before = await cached_queue(broker, store)
    after, _ = await store.queues.create(before.name, QueueSettings())
    return before, after


async def queue_messages(store_fixture: StoreFixture, queue: Queue) -> int:
    """Return how many messages can be received from a queue."""
    return len(await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100))


async def test_a_send_goes_to_the_recreated_queue(store_fixture: StoreFixture, broker: OpenBroker) -> None:
    before, after = await recreated(broker, store_fixture.store)
    await send(broker.sending, before.name, [NEW_MESSAGE, NEW_MESSAGE])
    assert await queue_messages(store_fixture, after) == 2
    before, after = await recreated(broker, store_fixture.store)
    assert len(await send_each(broker.sending, before.name, [NEW_MESSAGE])) == 1
    assert await queue_messages(store_fixture, after) == 1


async def test_an_attempt_goes_to_the_recreated_queue(store_fixture: StoreFixture, broker: OpenBroker) -> None:
    before, after = await recreated(broker, store_fixture.store)
    once = attempt()
    for replayed in (False, True):
        assert (await send(broker.sending, before.name, [NEW_MESSAGE], once)).replayed is replayed
    assert await queue_messages(store_fixture, after) == 1


async def test_volatile_messages_go_to_the_recreated_queue(store_fixture: StoreFixture, broker: OpenBroker) -> None:
    other = await store_fixture.queue()
    before, after = await recreated(broker, store_fixture.store)
    for queue in (before, other, before):
        await send_volatile(broker.sending, queue.name, NEW_MESSAGE)
    await broker.volatile_buffer.close()
    assert (await queue_messages(store_fixture, after), await queue_messages(store_fixture, other)) == (2, 1)


async def test_a_redrive_goes_to_the_recreated_queue(
    store_fixture: StoreFixture, broker: OpenBroker, queue: Queue
) -> None:
    before, after = await recreated(broker, store_fixture.store)
    await dead_letter(store_fixture, queue)
    selection = MessageSelection([MessageState.DEAD_LETTERED], MatchAll())
    assert await redrive(broker.administration, queue, before, selection, None) == 1
    assert await queue_messages(store_fixture, after) == 1


async def test_a_send_to_a_deleted_queue_is_refused(
    store_fixture: StoreFixture, broker: OpenBroker, queue: Queue
) -> None:
    before = await cached_queue(broker, store_fixture.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send(broker.sending, before.name, [NEW_MESSAGE])
    before = await cached_queue(broker, store_fixture.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send_each(broker.sending, before.name, [NEW_MESSAGE])
    before = await cached_queue(broker, store_fixture.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send(broker.sending, before.name, [NEW_MESSAGE], attempt())
    before = await cached_queue(broker, store_fixture.store)
    await dead_letter(store_fixture, queue)
    with pytest.raises(QueueNotFound, match=before.name):
        await redrive(
            broker.administration, queue, before, MessageSelection([MessageState.DEAD_LETTERED], MatchAll()), None
        )
    assert await store_fixture.execute("SELECT sequence_number FROM message WHERE state = 1") == []


# ---- messages of a deleted queue -------------------------------------------------------------------------------------


async def archived(store_fixture: StoreFixture) -> list[tuple[object, ...]]:
    """Return the archive's messages: number, queue, outcome, and how long each is kept."""
    kept = "sequence_number, queue, outcome, remove_at - settled_at"
    return await store_fixture.execute(f"SELECT {kept} FROM archive ORDER BY sequence_number")


async def run_retention(*stores: Store) -> None:
    """Run the background loops of these processes that archive the rest of deleted queues."""
    while sum(await asyncio.gather(*(store.delete_expired(2) for store in stores))):
        pass


async def every_state(store_fixture: StoreFixture, queue: Queue) -> list[int]:
    """Create a message in each state, the locked one last. Return their numbers."""
    (dead, deferred) = (await store_fixture.locked(queue), await store_fixture.locked(queue))
    for message, state in ((dead, MessageState.DEAD_LETTERED), (deferred, MessageState.DEFERRED)):
        assert await store_fixture.store.move([abandonment(message, state=state)]) == [True]
    locked = await store_fixture.locked(queue)
    others = [*await store_fixture.send(queue, b"1"), *await store_fixture.send(queue, b"2", delay=HOUR)]
    return [dead.sequence_number, deferred.sequence_number, locked.sequence_number, *others]


async def test_the_archive_has_every_message_of_a_deleted_queue(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=3 * HOUR))
    numbers = await every_state(store_fixture, queue)
    assert await store_fixture.store.queues.delete(queue)
    await run_retention(*stores)
    assert await store_fixture.execute("SELECT sequence_number FROM message") == []
    assert await archived(store_fixture) == [(number, queue.name, "purged", 3 * HOUR) for number in sorted(numbers)]
    digests = await store_fixture.execute("SELECT COUNT(content_digest) FROM archive")
    assert digests == [(5,)]


async def test_a_deleted_queue_without_an_archive_leaves_counts(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=0))
    await every_state(store_fixture, queue)
    assert await store_fixture.store.queues.delete(queue)
    await run_retention(store_fixture.store)
    assert await archived(store_fixture) == []
    found = await store_fixture.execute(
        "SELECT queue, SUM(accepted), SUM(unarchived) FROM accepted_count GROUP BY queue"
    )
    assert [(name, int(accepted), int(deleted_queue)) for name, accepted, deleted_queue in found] == [
        (queue.name, 5, 5)
    ]


async def test_a_settlement_in_a_deleted_queue_reports_that_it_was_purged(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.queues.delete(queue)
    await run_retention(store_fixture.store)
    assert await store_fixture.store.remove([completion(queue, message)]) == [False]
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert (tombstone.queue_id, tombstone.outcome) == (queue.id, Outcome.PURGED)


async def test_a_queue_deleted_by_an_older_server_takes_its_name_from_the_counts(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    (number,) = await store_fixture.send(queue, b"body")
    await store_fixture.execute(f"DELETE FROM queue WHERE id = {queue.id}")
    await run_retention(store_fixture.store)
    assert await archived(store_fixture) == [(number, queue.name, "purged", QueueSettings().archive_retention)]


async def test_messages_of_an_unknown_queue_are_archived_without_its_name(
    store_fixture: StoreFixture,
) -> None:
    queue = await store_fixture.queue()
    (number,) = await store_fixture.send(queue, b"body")
    for table in ("queue", "accepted_count"):
        await store_fixture.execute(f"DELETE FROM {table}")
    await run_retention(store_fixture.store)
    assert await archived(store_fixture) == [(number, "", "purged", QueueSettings().archive_retention)]


async def test_the_record_of_a_deleted_queue_is_kept_as_long_as_its_messages(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    await store_fixture.send(queue, b"body")
    assert await store_fixture.store.queues.delete(queue)
    await run_retention(store_fixture.store)
    await store_fixture.advance_time(23 * 3600)
    await store_fixture.store.delete_expired(1)
    assert await store_fixture.execute("SELECT name FROM deleted_queue") == [(queue.name,)]
    await store_fixture.advance_time(2 * 3600)
    await store_fixture.store.delete_expired(1)
    assert await store_fixture.execute("SELECT name FROM deleted_queue") == []


async def send_during(store: Store, queue: Queue, action: Callable[[], Awaitable[None]]) -> list[Receipt]:
    """Send, and run an action between the statement that stores and its commit."""
    assert isinstance(store, PostgresqlStore | MysqlStore)

    async def work(session: Any) -> list[Receipt]:
        if isinstance(store, PostgresqlStore):
            receipts = await postgresql_sending.send(session, [draft(queue)])
        else:
            receipts = await mysql_sending.store(session, [draft(queue)], session.execute)
        await action()
        return receipts

    return await store._pool.transaction(work)


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
async def test_a_send_that_commits_after_its_queue_is_deleted_is_archived(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    async def delete() -> None:
        assert await stores[1].queues.delete(queue)
        await run_retention(stores[1])

    (receipt,) = await send_during(store_fixture.store, queue, delete)
    await run_retention(stores[1])
    assert await archived(store_fixture) == [
        (receipt.sequence_number, queue.name, "purged", queue.settings.archive_retention)
    ]


@pytest.mark.behaviour("S2.10")
async def test_a_send_during_a_deletion_is_refused_or_archived(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    """Senders, receivers and redrives run during the deletion. The archive has every acknowledged message."""
    source = await store_fixture.queue()
    for _ in range(4):
        queue = await store_fixture.queue()
        acknowledged: list[int] = []
        enough = asyncio.Event()

        async def work(index: int, queue: Queue, acknowledged: list[int], enough: asyncio.Event) -> None:
            store, window = stores[index % len(stores)], MINUTE if index % 2 else 0
            while True:
                try:
                    receipts = await store.send([draft(queue, duplicate_window=window) for _ in range(3)])
                    acknowledged += [receipt.sequence_number for receipt in receipts]
                    if len(acknowledged) > 30:
                        enough.set()
                    row = await dead_letter(store_fixture, source) if index == 0 else None
                    if row and await store.redrive([Redrive(row, queue.id)]) == [True]:
                        acknowledged.append(row.sequence_number)
                except QueueGone:
                    return
                await store_fixture.store.claim(claim(queue, 1))

        working = [asyncio.create_task(work(index, queue, acknowledged, enough)) for index in range(6)]
        await enough.wait()
        assert await store_fixture.store.queues.delete(queue)
        await asyncio.gather(*working)
        await run_retention(*stores)
        mine = f"queue_id = {queue.id} AND outcome = 'purged'"
        purged = await store_fixture.execute(f"SELECT sequence_number FROM archive WHERE {mine}")
        assert sorted(number for (number,) in purged) == sorted(acknowledged)
        total = "SUM(accepted) + SUM(moved)"
        ((counted,),) = await store_fixture.execute(f"SELECT {total} FROM accepted_count WHERE queue_id = {queue.id}")
        assert int(counted) == len(acknowledged)
