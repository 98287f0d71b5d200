"""Claims on PostgreSQL stay cheap and in order while a backup keeps dead index entries alive."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Edit
from app.domain.instant import HOUR
from app.domain.message import MIN_PRIORITY, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import StoreUnavailable
from app.domain.work_unit import WorkUnit
from app.runtime.clock import SystemClock
from app.store.open import open_store
from app.store.postgresql.scan_bounds import COSTLY_SCAN, ScanResult
from app.store.postgresql.store import PostgresqlStore
from tests.bounds import bounded
from tests.contract.claim_recorder import ClaimRecorder
from tests.contract.store_fixture import LOCK_DURATION, PostgresqlFixture, abandonment, bodies, claim, completion, draft

DEAD_ENTRIES = 3 * COSTLY_SCAN


@pytest.fixture
async def store_fixture(postgres_url: str) -> AsyncIterator[PostgresqlFixture]:
    """An empty PostgreSQL store."""
    store_fixture = PostgresqlFixture(postgres_url)
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


@pytest.fixture
async def queue(store_fixture: PostgresqlFixture) -> AsyncIterator[Queue]:
    """An empty queue through which many messages have passed since a backup began that still sees them."""
    queue = await store_fixture.queue()
    backup = await asyncpg.connect(store_fixture._url)
    async with backup.transaction(isolation="repeatable_read"):
        await backup.execute("SELECT count(*) FROM message")
        for _ in range(DEAD_ENTRIES // 500):
            await store_fixture.send(queue, *[b"removed"] * 500)
            removed = await store_fixture.claim(queue, 500)
            await store_fixture.store.remove([completion(queue, message) for message in removed])
        yield queue
    await backup.close()


def has_scan_bound(store_fixture: PostgresqlFixture, queue: Queue) -> bool:
    """Return whether the store's own claims begin above the start of the queue."""
    assert isinstance(store_fixture.store, PostgresqlStore)
    return queue.id in store_fixture.store._scan_bounds._bounds


async def test_one_claim_skips_the_dead_entries_and_the_next_does_not(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    claims = ClaimRecorder(store_fixture)
    await store_fixture.send(queue, *[b"%d" % n for n in range(5)])
    assert await claims.claim(queue, 1) == [b"0"]
    assert claims.skipped >= DEAD_ENTRIES
    assert await claims.claim(queue, 2) == [b"1", b"2"]
    assert claims.skipped < 5


async def test_an_empty_queue_has_a_scan_bound_too(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    claims = ClaimRecorder(store_fixture)
    assert await claims.claim(queue, 1) == []
    assert claims.scan_bounds.scan([queue.id]).from_start == set()


async def test_abandoned_and_urgent_messages_are_delivered_in_order(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"first", b"second", b"third")
    (first,) = await store_fixture.claim(queue, 1)
    assert has_scan_bound(store_fixture, queue)
    await store_fixture.send(queue, b"urgent", priority=9)
    await store_fixture.store.move([abandonment(first)])
    assert bodies(await store_fixture.claim(queue, 1)) == [b"urgent"]
    assert bodies(await store_fixture.claim(queue, 2)) == [b"first", b"second"]
    assert has_scan_bound(store_fixture, queue)


async def test_promoted_messages_are_delivered_in_order(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"scheduled", delay=LOCK_DURATION)
    await store_fixture.send(queue, b"first", b"second")
    assert bodies(await store_fixture.claim(queue, 1)) == [b"first"]
    await store_fixture.execute(f"UPDATE message SET available_at = available_at - {2 * LOCK_DURATION} WHERE state = 3")
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(queue, 1)) == [b"scheduled"]


async def test_edited_messages_are_delivered_in_order(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"first", b"second", b"third")
    assert bodies(await store_fixture.claim(queue, 1)) == [b"first"]
    (_, third) = await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    await store_fixture.store.edit(Edit(third, priority=9))
    assert bodies(await store_fixture.claim(queue, 1)) == [b"third"]


async def test_a_message_of_another_process_below_the_bound_is_found_after_a_second(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    claims = ClaimRecorder(store_fixture)
    await store_fixture.send(queue, b"first", b"second", b"third", b"fourth")
    (first,) = await store_fixture.claim(queue, 1)
    assert await claims.claim(queue, 1) == [b"second"]
    await store_fixture.store.move([abandonment(first)])
    assert await claims.claim(queue, 1) == [b"third"]
    claims.seconds = 1.0
    assert await claims.claim(queue, 1) == [b"first"]


async def test_scans_above_and_below_the_bound_share_one_budget(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    claims = ClaimRecorder(store_fixture)
    await store_fixture.send(queue, b"first", b"second", b"third")
    (first,) = await store_fixture.claim(queue, 1)
    assert await claims.claim(queue, 1) == [b"second"]
    await store_fixture.store.move([abandonment(first)])
    claims.seconds = 0.5
    for body in (b"third", b"first"):
        assert await claims.claim(queue, 2, max_bytes=1) == [body]


async def test_a_claim_that_got_nothing_scans_below_the_bound_if_that_is_cheap(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    claims = ClaimRecorder(store_fixture)
    await store_fixture.send(queue, b"first", b"second")
    (first,) = await store_fixture.claim(queue, 1)
    assert await claims.claim(queue, 1) == [b"second"]
    await store_fixture.store.move([abandonment(first)])
    assert await claims.claim(queue, 1) == []
    claims.seconds = 0.1
    assert await claims.claim(queue, 1) == [b"first"]


async def overtaken(store_fixture: PostgresqlFixture, queue: Queue) -> tuple[PostgresqlStore, Message]:
    """Raise the bound of a queue over messages that are stored from now on, as a scan does that overtakes their commit.

    Return the store, and a locked message. The queue has another message, the last one.
    """
    assert isinstance(store_fixture.store, PostgresqlStore)
    await store_fixture.send(queue, b"first", b"last")
    (first,) = await store_fixture.claim(queue, 1)
    await store_fixture.execute(f"UPDATE message SET available_at = available_at + {2 * HOUR} WHERE state = 1")
    later = SystemClock().now() + HOUR
    bound = store_fixture.store._scan_bounds._bounds[queue.id]
    bound.raise_to(ScanResult((MIN_PRIORITY, (later, 0)), is_exhausted=True), later)
    return store_fixture.store, first


async def test_the_result_of_a_cancelled_commit_is_found_at_once(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    store, first = await overtaken(store_fixture, queue)
    unit = WorkUnit([completion(queue, first)], [draft(queue, b"result")])
    committing = asyncio.ensure_future(store.execute(unit, Attempt(b"k" * 32, b"f" * 32, HOUR)))
    for _ in bounded("the statement begins"):
        if store._commits._commits._running:
            break
        await asyncio.sleep(0)
    committing.cancel()
    for _ in bounded("the statement ends"):
        if not store._commits._commits._running:
            break
        await asyncio.sleep(0.001)
    assert committing.cancelled()
    assert bodies(await store_fixture.claim(queue, 1)) == [b"result"]


@pytest.mark.parametrize("is_unit", [False, True], ids=["send", "unit"])
async def test_a_message_whose_commit_is_not_acknowledged_is_found_at_once(
    store_fixture: PostgresqlFixture, queue: Queue, is_unit: bool
) -> None:
    """The connection is lost between the commit and its answer."""
    store, _ = await overtaken(store_fixture, queue)
    transaction = store._pool.transaction

    async def commit_and_lose_the_answer(work: Any) -> Any:
        await transaction(work)
        raise StoreUnavailable

    store._pool.transaction = commit_and_lose_the_answer
    drafts, attempt = [draft(queue, b"sent")], Attempt(b"k" * 32, b"f" * 32, HOUR)
    with pytest.raises(StoreUnavailable):
        await (store.execute(WorkUnit(drafts=drafts), attempt) if is_unit else store.send_or_replay(drafts, attempt))
    del store._pool.transaction
    assert bodies(await store_fixture.claim(queue, 1)) == [b"sent"]


async def test_a_new_process_begins_at_the_start(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"first", b"second")
    assert bodies(await store_fixture.claim(queue, 1)) == [b"first"]
    other = await open_store(store_fixture._url, SystemClock())
    assert bodies(await other.claim(claim(queue))) == [b"second"]
    await other.close()
