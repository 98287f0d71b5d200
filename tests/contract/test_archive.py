"""Ended messages are sealed into batches, once and for good. A batch is removed whole, on proof or when it expires."""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.ports.store import Store
from app.domain.archive import (
    DEFAULT_BATCH_LIMITS,
    ArchiveBatch,
    BatchLimits,
    CopiedBatch,
    DigestVersion,
    RemovalCause,
    TrimResult,
)
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.bounds import bounded
from tests.contract.store_fixture import StoreFixture, completion, draft, token

IN_BATCH = "WHERE sequence_number IN (SELECT sequence_number FROM archive_seal WHERE export_batch = {})"


async def archive_messages(store_fixture: StoreFixture, queue: Queue, count: int, retention: int = DAY) -> list[int]:
    """Archive `count` messages of the queue. Return their numbers."""
    numbers = await store_fixture.send(queue, *[b"body"] * count)
    await store_fixture.store.withdraw([
        Withdrawal(UnlockedRow(number, queue.id, MessageState.AVAILABLE), queue.name, Outcome.PURGED, retention)
        for number in numbers
    ])  # fmt: skip
    return numbers


async def seal(store: Store, bound: BatchLimits = DEFAULT_BATCH_LIMITS) -> ArchiveBatch | None:
    """Seal the first batch, with a digest of numbers: it stays valid when a test moves the times of rows."""
    first = await store.archive.first_unsealed(0)
    return None if first is None else await store.archive.seal(first, bound, DigestVersion.NUMBERS)


async def sealed(store: Store, bound: BatchLimits = DEFAULT_BATCH_LIMITS) -> ArchiveBatch:
    """Seal a batch that must exist."""
    batch = await seal(store, bound)
    assert batch is not None
    return batch


async def numbers_in(store_fixture: StoreFixture, batch: ArchiveBatch) -> list[int]:
    """Return the messages of a batch, ascending."""
    sql = f"SELECT sequence_number FROM archive {IN_BATCH.format(batch.number)} ORDER BY sequence_number"
    return [number for (number,) in await store_fixture.execute(sql)]


async def archive_rows(store_fixture: StoreFixture, condition: str = "") -> list[tuple[Any, ...]]:
    """Return the rows of the archive as they are stored, in the order of their numbers."""
    return await store_fixture.execute(f"SELECT * FROM archive {condition} ORDER BY sequence_number")


def digest(numbers: Sequence[int]) -> str:
    """Compute the digest as the owner of a copy does."""
    return sha256("".join(f"{number}\n" for number in sorted(numbers)).encode()).hexdigest()


def copy_of(batch: ArchiveBatch) -> CopiedBatch:
    """The claims of an honest copy."""
    return CopiedBatch(batch.number, batch.row_count, batch.digest)


# ---- sealing ---------------------------------------------------------------------------------------------------------


async def test_ended_messages_are_sealed_with_number_count_and_digest(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    numbers = await archive_messages(store_fixture, queue, 5)
    batch = await sealed(store_fixture.store)
    assert (batch.number, batch.row_count, batch.digest) == (1, 5, digest(numbers))
    assert await numbers_in(store_fixture, batch) == numbers
    ((latest,),) = await store_fixture.execute("SELECT MAX(remove_at) FROM archive")
    assert batch.remove_at == latest
    assert store_fixture.is_close(batch.sealed_at, await store_fixture.store.now())
    assert await store_fixture.store.archive.list_batches(0, 10) == [batch]
    assert await seal(store_fixture.store) is None


async def test_an_empty_archive_has_nothing_to_seal(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"body")
    assert await store_fixture.store.archive.first_unsealed(0) is None
    assert await store_fixture.store.archive.list_batches(0, 10) == []


async def test_batches_have_consecutive_numbers_and_a_limited_size(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await archive_messages(store_fixture, queue, 7)
    batches = [await sealed(store_fixture.store, BatchLimits(3)) for _ in range(3)]
    assert [batch.number for batch in batches] == [1, 2, 3]
    assert [batch.row_count for batch in batches] == [3, 3, 1]
    assert sorted([number for batch in batches for number in await numbers_in(store_fixture, batch)]) == numbers
    assert await store_fixture.store.archive.list_batches(0, 2) == batches[:2]
    assert await store_fixture.store.archive.list_batches(2, 10) == batches[2:]


@pytest.mark.fence("sealed")
async def test_a_sealed_batch_never_changes(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 3)
    batch = await sealed(store_fixture.store)
    rows = await archive_rows(store_fixture)
    # These are to be removed first, so the next batch spans the times of the first one.
    await archive_messages(store_fixture, queue, 2, retention=DAY - 30 * SECOND)
    assert (await sealed(store_fixture.store)).row_count == 2
    assert await archive_rows(store_fixture, IN_BATCH.format(1)) == rows
    assert (await store_fixture.store.archive.list_batches(0, 1)) == [batch]


async def test_sealing_leaves_archived_rows_as_they_were_written(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message, retention=DAY)])
    await archive_messages(store_fixture, queue, 2)
    rows = await archive_rows(store_fixture)
    assert (await sealed(store_fixture.store)).row_count == 3
    assert await archive_rows(store_fixture) == rows


async def test_a_row_that_vanished_before_its_seal_holds_up_no_other(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await archive_messages(store_fixture, queue, 3)
    await store_fixture.execute(f"DELETE FROM archive WHERE sequence_number = {numbers[0]}")
    assert (await sealed(store_fixture.store)).row_count == 2
    assert await seal(store_fixture.store) is None


async def test_a_batch_has_messages_with_similar_removal_times(store_fixture: StoreFixture, queue: Queue) -> None:
    late = await archive_messages(store_fixture, queue, 2, retention=2 * DAY)
    soon = await archive_messages(store_fixture, queue, 2, retention=DAY)
    within_the_minute = await archive_messages(store_fixture, queue, 1, retention=DAY + 30 * SECOND)
    after_it = await archive_messages(store_fixture, queue, 1, retention=DAY + 70 * SECOND)
    batches = [await sealed(store_fixture.store) for _ in range(3)]
    assert [await numbers_in(store_fixture, batch) for batch in batches] == [soon + within_the_minute, after_it, late]


async def test_the_size_of_bodies_limits_a_batch(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 5)  # of four bytes each
    assert [(await sealed(store_fixture.store, BatchLimits(max_body_bytes=10))).row_count for _ in range(3)] == [
        2,
        2,
        1,
    ]


async def test_a_message_too_large_for_any_batch_has_its_own(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 2)
    assert [(await sealed(store_fixture.store, BatchLimits(max_body_bytes=3))).row_count for _ in range(2)] == [1, 1]


async def test_sealing_continues_after_a_gap_in_time(store_fixture: StoreFixture, queue: Queue) -> None:
    (soon,) = await archive_messages(store_fixture, queue, 1, retention=DAY)
    (late,) = await archive_messages(store_fixture, queue, 1, retention=2 * DAY)
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    assert (first.sequence_number, store_fixture.is_close(first.age, 0)) == (soon, True)
    await store_fixture.advance_time(20)
    second = await store_fixture.store.archive.first_unsealed(first.remove_at + MINUTE)
    assert second is not None
    assert (second.sequence_number, store_fixture.is_close(second.age, 20 * SECOND)) == (late, True)


async def test_a_batch_sealed_by_another_process_is_not_sealed_again(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 2)
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    await sealed(store_fixture.store)
    await archive_messages(store_fixture, queue, 2)
    assert await store_fixture.store.archive.seal(first) is None


@pytest.mark.behaviour("S2.10", "S2.11", "S2.32")
async def test_messages_that_complete_during_sealing_are_in_exactly_one_batch(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    """With eight writers and two sealers no message is lost, none is in two batches, and numbers are in order."""
    writers, rounds, together = 8, 12, 5

    async def write(store: Store) -> list[int]:
        ended: list[int] = []
        for _ in range(rounds):
            await store.send([draft(queue) for _ in range(together)])
            messages = await store_fixture.claim(queue, together)
            done = await store.remove([completion(queue, message) for message in messages])
            ended += [message.sequence_number for message, removed in zip(messages, done, strict=True) if removed]
        return ended

    async def seal_until_done(store: Store) -> list[ArchiveBatch]:
        batches: list[ArchiveBatch] = []
        while not all(task.done() for task in writing):
            batches += [batch] if (batch := await seal(store, BatchLimits(17))) else []
            await asyncio.sleep(0)  # a database in memory never waits
            known = await store.archive.list_batches(0, 1000)
            assert [sealed.number for sealed in known] == list(range(1, len(known) + 1))
        return batches

    writing = [asyncio.create_task(write(stores[index % 2])) for index in range(writers)]
    by_each = await asyncio.gather(*(seal_until_done(store) for store in stores))
    ended = sorted([number for task in writing for number in task.result()])
    batches = [batch for some in by_each for batch in some]
    for _ in bounded("every ended message is sealed", len(ended) + 1):
        batch = await seal(store_fixture.store)
        if batch is None:
            break
        batches.append(batch)
    batches.sort(key=lambda batch: batch.number)
    assert len(ended) > writers * rounds  # a claim skips locked rows, so a few messages may remain
    assert await store_fixture.store.archive.list_batches(0, 1000) == batches
    assert sum(batch.row_count for batch in batches) == len(ended)
    assert sorted([number for batch in batches for number in await numbers_in(store_fixture, batch)]) == ended
    assert all([digest(await numbers_in(store_fixture, batch)) == batch.digest for batch in batches])


# ---- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.fence("time")
@pytest.mark.behaviour("S2.11", "S4.17")
async def test_a_batch_is_removed_whole_when_its_last_message_expires(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await archive_messages(store_fixture, queue, 2, retention=HOUR)
    await archive_messages(store_fixture, queue, 2, retention=HOUR + 40 * SECOND)
    batch = await sealed(store_fixture.store)
    await store_fixture.advance_time(3600 + 20)
    assert await store_fixture.store.archive.delete_expired(1) == 0
    await store_fixture.advance_time(30)
    assert await store_fixture.store.archive.delete_expired(1) == 4
    assert await store_fixture.execute("SELECT sequence_number FROM archive") == []
    assert await store_fixture.execute("SELECT sequence_number FROM archive_seal") == []
    (removed,) = await store_fixture.store.archive.list_batches(0, 10)
    assert (removed.number, removed.removal) == (batch.number, RemovalCause.EXPIRED)
    assert store_fixture.is_close(removed.removed_at, await store_fixture.store.now())
    assert await store_fixture.store.archive.delete_expired(1) == 0
    assert (await store_fixture.store.archive.list_batches(0, 10)) == [removed]


async def test_unsealed_messages_stay_at_any_age(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await archive_messages(store_fixture, queue, 2, retention=SECOND)
    await store_fixture.advance_time(3600)
    assert await store_fixture.store.archive.delete_expired(100) == 0
    assert await numbers_in(store_fixture, await sealed(store_fixture.store)) == numbers
    assert await store_fixture.store.archive.delete_expired(100) == 2


async def test_several_batches_are_removed_at_once_up_to_the_limit(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 8, retention=SECOND)
    for _ in range(4):
        await sealed(store_fixture.store, BatchLimits(2))
    await store_fixture.advance_time(60)
    assert await store_fixture.store.archive.delete_expired(3) == 4
    assert await store_fixture.store.archive.delete_expired(2) == 2
    assert await store_fixture.store.archive.delete_expired(3) == 2


@pytest.mark.fence("state")
async def test_a_removed_batch_is_recorded_for_a_year_and_its_number_never_reused(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await archive_messages(store_fixture, queue, 4, retention=SECOND)
    for _ in range(2):
        await sealed(store_fixture.store, BatchLimits(2))
    await store_fixture.advance_time(60)
    await store_fixture.store.archive.delete_expired(100)
    await store_fixture.advance_time(365 * 86_400)
    await store_fixture.store.archive.delete_expired(100)
    assert [batch.number for batch in await store_fixture.store.archive.list_batches(0, 10)] == [1, 2]
    await store_fixture.advance_time(2 * 86_400)
    await store_fixture.store.archive.delete_expired(100)
    assert [batch.number for batch in await store_fixture.store.archive.list_batches(0, 10)] == [2]
    await archive_messages(store_fixture, queue, 1)
    assert (await sealed(store_fixture.store)).number == 3


async def test_a_token_is_known_for_an_hour_even_after_its_batch_is_removed(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message, retention=SECOND)])
    await sealed(store_fixture.store)
    await store_fixture.advance_time(120)
    assert await store_fixture.store.archive.delete_expired(100) == 1
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.COMPLETED


# ---- trimming --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.18")
async def test_a_batch_is_trimmed_once_a_copy_is_proven(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 3)
    kept = await archive_messages(store_fixture, queue, 1, retention=2 * DAY)
    batch = await sealed(store_fixture.store)
    await sealed(store_fixture.store)
    await store_fixture.advance_time(3700)
    assert await store_fixture.store.archive.trim(copy_of(batch)) is TrimResult.TRIMMED
    assert await store_fixture.execute("SELECT sequence_number FROM archive") == [(kept[0],)]
    assert await store_fixture.execute("SELECT sequence_number FROM archive_seal") == [(kept[0],)]
    removed, other = await store_fixture.store.archive.list_batches(0, 10)
    assert (removed.removal, store_fixture.is_close(removed.removed_at, await store_fixture.store.now())) == (
        RemovalCause.TRIMMED,
        True,
    )
    assert (other.removal, other.removed_at) == (None, None)
    assert await store_fixture.store.archive.trim(copy_of(batch)) is TrimResult.ALREADY_REMOVED


async def test_a_copy_that_differs_trims_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await archive_messages(store_fixture, queue, 3)
    batch = await sealed(store_fixture.store)
    await store_fixture.advance_time(3700)
    for wrong in (
        CopiedBatch(batch.number, 2, batch.digest),
        CopiedBatch(batch.number, 3, digest(numbers[:2])),
        CopiedBatch(batch.number, 2, digest(numbers[:2])),
        CopiedBatch(batch.number, 0, digest([])),
    ):
        assert await store_fixture.store.archive.trim(wrong) is TrimResult.DIFFERS
    assert await numbers_in(store_fixture, batch) == numbers


async def test_a_trim_checks_the_rows_and_not_only_the_record_of_the_batch(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    numbers = await archive_messages(store_fixture, queue, 3)
    batch = await sealed(store_fixture.store)
    await store_fixture.advance_time(3700)
    await store_fixture.execute(f"DELETE FROM archive WHERE sequence_number = {numbers[0]}")
    assert await store_fixture.store.archive.trim(copy_of(batch)) is TrimResult.DIFFERS
    assert await numbers_in(store_fixture, batch) == numbers[1:]


async def test_a_batch_that_never_existed_is_unknown(store_fixture: StoreFixture) -> None:
    assert await store_fixture.store.archive.trim(CopiedBatch(1, 0, digest([]))) is TrimResult.UNKNOWN


@pytest.mark.behaviour("S4.19")
async def test_messages_that_ended_within_the_hour_stay_as_tombstones(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await archive_messages(store_fixture, queue, 2)
    await store_fixture.advance_time(3700)
    late = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, late, retention=DAY - HOUR - 100 * SECOND)])
    batch = await sealed(store_fixture.store)
    assert batch.row_count == 3
    await store_fixture.advance_time(3540)
    assert await store_fixture.store.archive.trim(copy_of(batch)) is TrimResult.TOO_YOUNG
    assert await store_fixture.store.tombstones([token(late)]) != [None]
    await store_fixture.advance_time(61)
    assert await store_fixture.store.archive.trim(copy_of(batch)) is TrimResult.TRIMMED


async def test_of_concurrent_removals_of_a_batch_one_succeeds(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    for _ in range(5):
        await archive_messages(store_fixture, queue, 4, retention=2 * HOUR)
        batch = await sealed(store_fixture.store)
        await store_fixture.advance_time(2 * 3600 + 60)
        *trims, forgotten, again = await asyncio.gather(
            *(store.archive.trim(copy_of(batch)) for store in [*stores, *stores]),
            *(store.archive.delete_expired(100) for store in stores),
        )
        assert set(trims) <= {TrimResult.TRIMMED, TrimResult.ALREADY_REMOVED}
        assert trims.count(TrimResult.TRIMMED) + (forgotten + again) // 4 == 1
        assert await numbers_in(store_fixture, batch) == []
