"""Claims on PostgreSQL while a backup keeps dead index entries alive: cheap, and in order."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.broker.ports import Edit
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.runtime.clock import SystemClock
from app.store.floors import DEAR
from app.store.open import open_store
from app.store.postgresql import PostgresStore
from tests.contract.claims import WatchedClaims
from tests.contract.subject import LOCK, PostgresSubject, abandonment, bodies, claim, completion

DEAD = 3 * DEAR


@pytest.fixture
async def subject(postgres_url: str) -> AsyncIterator[PostgresSubject]:
    """A PostgreSQL store with nothing in it."""
    subject = PostgresSubject(postgres_url)
    await subject.begin()
    yield subject
    await subject.end()


@pytest.fixture
async def queue(subject: PostgresSubject) -> AsyncIterator[Queue]:
    """An empty queue through which many messages have passed since a backup began that still sees them."""
    queue = await subject.queue()
    backup = await asyncpg.connect(subject._url)
    async with backup.transaction(isolation="repeatable_read"):
        await backup.execute("SELECT count(*) FROM message")
        for _ in range(DEAD // 500):
            await subject.send(queue, *[b"gone"] * 500)
            gone = await subject.claim(queue, 500)
            await subject.store.remove([completion(queue, message) for message in gone])
        yield queue
    await backup.close()


def has_floor(subject: PostgresSubject, queue: Queue) -> bool:
    """Whether the store's own claims begin above the bottom."""
    assert isinstance(subject.store, PostgresStore)
    return queue.id in subject.store._floors._floors


async def test_one_claim_goes_past_the_dead_and_the_next_does_not(subject: PostgresSubject, queue: Queue) -> None:
    claims = WatchedClaims(subject)
    await subject.send(queue, *[b"%d" % n for n in range(5)])
    assert await claims.claim(queue, 1) == [b"0"]
    assert claims.passed >= DEAD
    assert await claims.claim(queue, 2) == [b"1", b"2"]
    assert claims.passed < 5


async def test_an_empty_queue_has_a_floor_as_well(subject: PostgresSubject, queue: Queue) -> None:
    claims = WatchedClaims(subject)
    assert await claims.claim(queue, 1) == []
    assert claims.floors.look([queue.id]).from_bottom == set()


async def test_what_is_abandoned_or_urgent_comes_in_its_place(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, b"first", b"second", b"third")
    (first,) = await subject.claim(queue, 1)
    assert has_floor(subject, queue)
    await subject.send(queue, b"urgent", priority=9)
    await subject.store.move([abandonment(first)])
    assert bodies(await subject.claim(queue, 1)) == [b"urgent"]
    assert bodies(await subject.claim(queue, 2)) == [b"first", b"second"]
    assert has_floor(subject, queue)


async def test_what_was_scheduled_comes_in_its_place(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, b"scheduled", delay=LOCK)
    await subject.send(queue, b"first", b"second")
    assert bodies(await subject.claim(queue, 1)) == [b"first"]
    await subject.execute(f"UPDATE message SET available_at = available_at - {2 * LOCK} WHERE state = 3")
    await subject.store.awaken(10)
    assert bodies(await subject.claim(queue, 1)) == [b"scheduled"]


async def test_what_was_edited_comes_in_its_place(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, b"first", b"second", b"third")
    assert bodies(await subject.claim(queue, 1)) == [b"first"]
    (_, third) = await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    await subject.store.edit(Edit(third, priority=9))
    assert bodies(await subject.claim(queue, 1)) == [b"third"]


async def test_what_another_process_puts_below_the_floor_is_found_after_a_second(
    subject: PostgresSubject, queue: Queue
) -> None:
    claims = WatchedClaims(subject)
    await subject.send(queue, b"first", b"second", b"third", b"fourth")
    (first,) = await subject.claim(queue, 1)
    assert await claims.claim(queue, 1) == [b"second"]
    await subject.store.move([abandonment(first)])
    assert await claims.claim(queue, 1) == [b"third"]
    claims.seconds = 1.0
    assert await claims.claim(queue, 1) == [b"first"]


async def test_a_claim_that_comes_short_looks_below_the_floor_when_that_is_cheap(
    subject: PostgresSubject, queue: Queue
) -> None:
    claims = WatchedClaims(subject)
    await subject.send(queue, b"first", b"second")
    (first,) = await subject.claim(queue, 1)
    assert await claims.claim(queue, 1) == [b"second"]
    await subject.store.move([abandonment(first)])
    assert await claims.claim(queue, 1) == []
    claims.seconds = 0.1
    assert await claims.claim(queue, 1) == [b"first"]


async def test_a_new_process_begins_at_the_bottom(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, b"first", b"second")
    assert bodies(await subject.claim(queue, 1)) == [b"first"]
    other = await open_store(subject._url, SystemClock())
    assert bodies(await other.claim(claim(queue))) == [b"second"]
    await other.close()
