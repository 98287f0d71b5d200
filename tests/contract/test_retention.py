"""Expired rows are deleted in batches. All other rows stay."""

import asyncio
import secrets
from collections import defaultdict
from itertools import pairwise

from app.broker.administration.expire import expire_messages
from app.broker.ports.attempts import Attempt
from app.broker.ports.store import Store
from app.broker.settling.release_expired import release_expired
from app.domain.archive import BatchLimits
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import Draft, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import NO_EXPIRED_GENERATION
from tests.bounds import bounded
from tests.brokers import build_broker
from tests.contract.store_fixture import (
    StoreFixture,
    abandonment,
    bodies,
    completion,
    draft,
    retry_until_answered,
    token,
)
from tests.virtual_clock import VirtualClock, run_advancing

TABLES = ("archive", "settlement", "attempt", "recent_id", "message")


async def sizes(store_fixture: StoreFixture) -> dict[str, int]:
    """Return the number of rows of each table."""
    return {table: (await store_fixture.execute(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}


async def run_retention(store_fixture: StoreFixture) -> int:
    """Delete everything that has expired. The archive is deleted in sealed batches."""
    for _ in bounded("every ended message is sealed"):
        first = await store_fixture.store.archive.first_unsealed(0)
        if first is None:
            break
        await store_fixture.store.archive.seal(first, BatchLimits(max_messages=2))
    total = 0
    for _ in bounded("no expired row is left"):
        removed = await store_fixture.store.delete_expired(3) + await store_fixture.store.archive.delete_expired(3)
        assert removed <= 3 * len(TABLES)
        if not removed:
            break
        total += removed
    return total


async def test_every_row_is_kept_for_its_time_and_no_longer(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=2 * HOUR))
    for index in range(7):
        message = await store_fixture.locked(queue)
        await store_fixture.store.remove([completion(queue, message)])
        released = await store_fixture.locked(queue)
        await store_fixture.store.move([abandonment(released, state=MessageState.DEFERRED)])
        one = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), 3 * HOUR)
        await store_fixture.store.send_or_replay(
            [draft(queue, message_id=f"{index}", duplicate_window=4 * HOUR - MINUTE)], one
        )
        await store_fixture.claim(queue, lock_duration=DAY)
    kept = {"archive": 7, "settlement": 7, "attempt": 7, "recent_id": 7, "message": 14}
    assert await sizes(store_fixture) == kept
    for table in ("settlement", "archive", "attempt", "recent_id"):  # kept for one to four hours
        assert await run_retention(store_fixture) == 0
        await store_fixture.advance_time(3600)
        assert await run_retention(store_fixture) == 7
        kept[table] = 0
        assert await sizes(store_fixture) == kept


async def test_a_message_id_is_kept_past_its_window_for_running_sends(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    """A send reads the clock before it waits for the id's row. If the row were gone, it would store a duplicate."""
    await store_fixture.send(queue, b"body", message_id="id", duplicate_window=HOUR)
    await store_fixture.advance_time(3601)
    assert await run_retention(store_fixture) == 0
    (receipt,) = await store_fixture.store.send([draft(queue, message_id="id", duplicate_window=HOUR)])
    assert not receipt.duplicate
    await store_fixture.advance_time(3661)
    assert await run_retention(store_fixture) == 1


async def test_deletion_of_expired_rows_blocks_no_send(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    """No id is stored twice within its window, and a send fails only while another one uses one of its ids."""
    window = 3 * SECOND // 1000

    async def send_batch(store: Store, drafts: list[Draft]) -> list[Receipt]:
        return await retry_until_answered(lambda: store.send(drafts))

    async def send(store: Store) -> list[Receipt]:
        batches = [
            [draft(queue, message_id=f"{n % 5}-{m}", duplicate_window=window) for m in range(3)] for n in range(80)
        ]
        return [receipt for drafts in batches for receipt in await send_batch(store, drafts)]

    async def delete_expired(store: Store) -> None:
        for _ in range(40):
            await store.delete_expired(500)
            if stores[0] is stores[1]:
                # The clock of a single-process store stands still unless the test moves it.
                await store_fixture.advance_time(0.001)

    sends = [send(stores[index % 2]) for index in range(4)]
    everything = asyncio.gather(*sends, *(delete_expired(store) for store in stores))
    # A sender whose id another transaction has locked retries by the clock of its process.
    answers = await (everything if stores[0] is stores[1] else run_advancing(store_fixture.clock, everything))
    stored: defaultdict[str, list[int]] = defaultdict(list)
    for receipts in answers[: len(sends)]:
        for receipt in receipts or ():
            if not receipt.duplicate:
                stored[receipt.message_id].append(receipt.enqueued_at)
    times = [sorted(sequence) for sequence in stored.values()]
    assert all(later - earlier >= window for time in times for earlier, later in pairwise(time))
    assert any(len(time) > 1 for time in times), "no id outlived its window"
    sent = [receipt for receipts in answers[: len(sends)] for receipt in receipts or ()]
    assert any(receipt.duplicate for receipt in sent), "no id came twice within its window"


async def test_a_forgotten_delivery_is_unknown(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message)])
    await store_fixture.advance_time(queue.settings.archive_retention // SECOND + 1)
    await run_retention(store_fixture)
    assert await store_fixture.store.tombstones([token(message)]) == [None]


async def test_messages_of_a_deleted_queue_are_removed_in_every_state(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    deleted = await store_fixture.queue()
    kept = await store_fixture.send(queue, b"kept", b"kept")
    await store_fixture.locked(deleted)
    moved = await store_fixture.locked(deleted)
    await store_fixture.store.move([abandonment(moved, state=MessageState.DEAD_LETTERED)])
    await store_fixture.send(deleted, *[b"body"] * 9)
    await store_fixture.send(deleted, b"body", delay=MINUTE)
    assert await store_fixture.store.queues.delete(deleted)
    assert await run_retention(store_fixture) == 12
    left = await store_fixture.execute("SELECT sequence_number FROM message ORDER BY sequence_number")
    assert left == [(number,) for number in kept]


async def test_messages_of_a_deleted_queue_delay_no_other_expiry(store_fixture: StoreFixture, queue: Queue) -> None:
    """Each run takes a batch of the locks that ended first. A lock that it cannot end would block the next run."""
    broker = build_broker(store_fixture.store, VirtualClock())
    deleted = await store_fixture.queue()
    for index, short in enumerate((deleted, deleted, queue), start=1):
        await store_fixture.send(short, b"locked")
        await store_fixture.claim(short, lock_duration=index * SECOND)
        await store_fixture.send(short, b"expired_messages", ttl=index * SECOND)
    assert await store_fixture.store.queues.delete(deleted)
    await store_fixture.advance_time(10)
    for _ in range(2):
        await release_expired(
            broker.settling,
            [(locked, NO_EXPIRED_GENERATION) for locked in await store_fixture.store.expired_locks(2)],
        )
        await expire_messages(broker.administration, await store_fixture.store.expired_messages(2))
    assert await store_fixture.store.expired_locks(2) == []
    assert await store_fixture.store.expired_messages(2) == []
    assert bodies(await store_fixture.claim(queue)) == [b"locked"]
    archived = await store_fixture.execute("SELECT queue, outcome FROM archive ORDER BY sequence_number")
    assert archived == [(deleted.name, "purged"), (deleted.name, "purged"), (queue.name, "expired")]
    await broker.queue_cache.close()


async def test_a_queue_of_the_same_name_inherits_no_messages(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"old")
    assert await store_fixture.store.queues.delete(queue)
    again, made = await store_fixture.store.queues.create(queue.name, QueueSettings())
    assert made
    assert again.id != queue.id
    assert await store_fixture.claim(again) == []
    (new,) = await store_fixture.send(again, b"new")
    await run_retention(store_fixture)
    found = await store_fixture.store.read(again.id, new)
    assert found is not None
    assert found.body == b"new"
    assert len(await store_fixture.claim(again)) == 1


async def test_a_sequence_number_is_never_reused(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message, retention=MINUTE)])
    await store_fixture.advance_time(DAY // SECOND)
    await run_retention(store_fixture)
    assert await sizes(store_fixture) == dict.fromkeys(TABLES, 0)
    (number,) = await store_fixture.send(queue, b"body")
    assert number > message.sequence_number
