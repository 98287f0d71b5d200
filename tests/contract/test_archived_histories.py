"""The events of an archived message stay with it: sealed with its batch, kept as long, and trimmed only on proof."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import pytest

from app.domain.archive import DEFAULT_BATCH_LIMITS, ArchiveBatch, BatchLimits, CopiedBatch, DigestVersion, TrimResult
from app.domain.instant import DAY, SECOND
from app.domain.queue import Queue, QueueSettings
from tests.contract.store_fixture import StoreFixture, abandonment, completion, draft
from tests.contract.test_digests import digest_of_row, framed, rows_of

COLUMNS = (
    "sequence_number", "id", "happened_at", "event", "state", "outcome", "receiver_id", "reason", "delivery_count",
)  # fmt: skip
"""The columns that the digest of an event covers, in order, written down here by hand."""


@pytest.fixture
async def recorded(store_fixture: StoreFixture) -> Queue:
    """An empty queue with a history, whose archive is kept for a day."""
    return await store_fixture.queue(QueueSettings(history=True, archive_retention=DAY))


async def complete(store_fixture: StoreFixture, queue: Queue, count: int = 1) -> list[int]:
    """Send, receive and complete messages of a queue. Return their numbers."""
    await store_fixture.store.send([draft(queue, keeps_history=queue.settings.history) for _ in range(count)])
    messages = await store_fixture.claim(queue, count, receiver_id="worker ü", keeps_history=queue.settings.history)
    ended = [completion(queue, message, keeps_history=queue.settings.history) for message in messages]
    assert all(await store_fixture.store.remove(ended))
    return [message.sequence_number for message in messages]


async def fail_once(store_fixture: StoreFixture, queue: Queue) -> None:
    """Send a message and abandon it with a reason, in a queue with a history."""
    await store_fixture.store.send([draft(queue, keeps_history=True)])
    (message,) = await store_fixture.claim(queue, 1, keeps_history=True)
    failure = abandonment(message, last_failure="'\"\\ \t😀", keeps_history=True)
    assert await store_fixture.store.move([failure]) == [True]


async def seal(
    store_fixture: StoreFixture,
    limits: BatchLimits = DEFAULT_BATCH_LIMITS,
    version: DigestVersion = DigestVersion.HISTORIES,
) -> ArchiveBatch:
    """Seal the first batch."""
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    batch = await store_fixture.store.archive.seal(first, limits, version)
    assert batch is not None
    return batch


async def events(store_fixture: StoreFixture) -> list[Mapping[str, Any]]:
    """Return every stored event, by message and in order."""
    found = await store_fixture.execute(f"SELECT {', '.join(COLUMNS)} FROM message_event ORDER BY sequence_number, id")
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def digest_of_event(event: Mapping[str, Any]) -> str:
    """Compute the digest as the reader of a copy does."""
    fields = [None if event[name] is None else str(event[name]).encode() for name in COLUMNS]
    return sha256(b"".join(map(framed, fields))).hexdigest()


async def digest_of_copy(store_fixture: StoreFixture, batch: ArchiveBatch, found: Iterable[Mapping[str, Any]]) -> str:
    """Compute the digest of a batch with these events as the reader of a copy does."""
    archived = sorted(await rows_of(store_fixture, batch), key=lambda row: row["sequence_number"])
    lines = [*map(digest_of_row, archived), *map(digest_of_event, found)]
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def copy_of(batch: ArchiveBatch) -> CopiedBatch:
    """An honest copy."""
    return CopiedBatch(batch.number, batch.row_count, batch.digest)


async def run_cleanup(store_fixture: StoreFixture) -> None:
    """Delete what is past its time, as the background loops do."""
    await store_fixture.store.archive.delete_expired(500)
    await store_fixture.store.delete_expired(500)


# ---- sealing ---------------------------------------------------------------------------------------------------------


async def test_the_digest_of_a_batch_covers_the_events_of_its_messages(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    await fail_once(store_fixture, recorded)
    await complete(store_fixture, recorded, 4)
    await fail_once(store_fixture, recorded)
    sealed = await seal(store_fixture)
    numbers = [row["sequence_number"] for row in await rows_of(store_fixture, sealed)]
    found = [event for event in await events(store_fixture) if event["sequence_number"] in numbers]
    assert (sealed.digest_version, sealed.row_count, len(found)) == (3, 4, 2 + 4 * 3)
    for name in COLUMNS:  # or the events would prove nothing about the column
        assert any(event[name] is not None for event in found), name
    assert sealed.digest == await digest_of_copy(store_fixture, sealed, found)


async def test_a_batch_without_events_is_sealed_as_before(store_fixture: StoreFixture, queue: Queue) -> None:
    await complete(store_fixture, queue, 2)
    sealed = await seal(store_fixture)
    assert sealed.digest_version == DigestVersion.ROWS
    assert sealed.digest == await digest_of_copy(store_fixture, sealed, [])


async def test_the_events_of_a_batch_are_bounded(store_fixture: StoreFixture, recorded: Queue) -> None:
    await complete(store_fixture, recorded, 5)
    limits = BatchLimits(max_events=6)
    assert [(await seal(store_fixture, limits)).row_count for _ in range(3)] == [2, 2, 1]


async def test_a_message_with_too_many_events_is_a_batch(store_fixture: StoreFixture, recorded: Queue) -> None:
    await complete(store_fixture, recorded, 2)
    assert (await seal(store_fixture, BatchLimits(max_events=2))).row_count == 1


# ---- trimming --------------------------------------------------------------------------------------------------------


async def test_a_copy_of_messages_and_events_trims_both(store_fixture: StoreFixture, recorded: Queue) -> None:
    await complete(store_fixture, recorded, 2)
    await store_fixture.advance_time(3700)
    sealed = await seal(store_fixture)
    (live,) = await store_fixture.send(recorded, b"body", keeps_history=True)
    assert await store_fixture.store.archive.trim(copy_of(sealed)) is TrimResult.TRIMMED
    assert [event["sequence_number"] for event in await events(store_fixture)] == [live]


async def test_a_copy_without_the_events_trims_nothing(store_fixture: StoreFixture, recorded: Queue) -> None:
    await complete(store_fixture, recorded, 2)
    await store_fixture.advance_time(3700)
    sealed = await seal(store_fixture)
    found = await events(store_fixture)
    for part in ([], found[:-1], found[1:], list(reversed(found))):
        copy = CopiedBatch(sealed.number, 2, await digest_of_copy(store_fixture, sealed, part))
        assert await store_fixture.store.archive.trim(copy) is TrimResult.DIFFERS
    assert await events(store_fixture) == found


CHANGES = {"sequence_number": "sequence_number + 1", "event": "'other'", "outcome": "'other'", "reason": "'other'"} | {
    "receiver_id": "NULL", "id": "id + 1000", "happened_at": "happened_at + 1", "state": "9", "delivery_count": "9"
}  # fmt: skip


async def test_a_batch_with_a_changed_event_is_not_trimmed(store_fixture: StoreFixture, recorded: Queue) -> None:
    """The copy is unchanged, so the trim must not remove the events that differ from it."""
    assert set(CHANGES) == set(COLUMNS)
    await complete(store_fixture, recorded)
    await store_fixture.advance_time(3700)
    sealed = await seal(store_fixture)
    await store_fixture.execute("CREATE TABLE spare_events AS SELECT * FROM message_event")
    for name, change in CHANGES.items():
        await store_fixture.execute(f"UPDATE message_event SET {name} = {change} WHERE event = 'delivered'")
        assert await store_fixture.store.archive.trim(copy_of(sealed)) is TrimResult.DIFFERS, name
        await store_fixture.execute("DELETE FROM message_event")
        await store_fixture.execute("INSERT INTO message_event SELECT * FROM spare_events")
    await store_fixture.execute("DROP TABLE spare_events")
    assert await store_fixture.store.archive.trim(copy_of(sealed)) is TrimResult.TRIMMED


async def test_a_trim_leaves_events_that_the_digest_does_not_cover(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    """An older server sealed the batch, so a proven copy of it may lack them."""
    await complete(store_fixture, recorded)
    await store_fixture.advance_time(3700)
    sealed = await seal(store_fixture, version=DigestVersion.ROWS)
    assert sealed.digest_version == DigestVersion.ROWS
    assert await store_fixture.store.archive.trim(copy_of(sealed)) is TrimResult.TRIMMED
    assert len(await events(store_fixture)) == 3
    await store_fixture.advance_time(2 * DAY // SECOND)
    await run_cleanup(store_fixture)
    assert await events(store_fixture) == []


# ---- retention -------------------------------------------------------------------------------------------------------


async def test_events_are_kept_while_their_message_is_in_the_archive(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    """A reader of the batch would otherwise get half of it."""
    await complete(store_fixture, recorded)
    await store_fixture.advance_time(2 * DAY // SECOND)
    await run_cleanup(store_fixture)
    sealed = await seal(store_fixture)
    assert sealed.digest == await digest_of_copy(store_fixture, sealed, found := await events(store_fixture))
    assert len(found) == 3
    await run_cleanup(store_fixture)
    assert await rows_of(store_fixture, sealed) == []
    await store_fixture.advance_time(2 * DAY // SECOND)
    await run_cleanup(store_fixture)
    assert await events(store_fixture) == []
