"""Ended messages are sealed into batches, each once and for good; a batch goes as a whole, and only with good reason."""

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import pytest

from app.broker.ports import Store, Unlocked, Withdrawal
from app.domain.archive import USUAL_BOUND, ArchiveBatch, Bound, Copy, DigestVersion, RemovalCause, TrimResult
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.bounds import bounded
from tests.contract.subject import Subject, completion, draft, is_close, token

EVERYTHING = "sequence_number, queue, outcome, settled_at, remove_at, message_id, export_batch"


async def end(subject: Subject, queue: Queue, count: int, retention: int = DAY) -> list[int]:
    """Let so many messages of the queue go to its archive; their numbers."""
    numbers = await subject.send(queue, *[b"body"] * count)
    await subject.store.withdraw([
        Withdrawal(Unlocked(number, queue.id, MessageState.AVAILABLE), queue.name, Outcome.PURGED, retention)
        for number in numbers
    ])  # fmt: skip
    return numbers


async def seal(store: Store, bound: Bound = USUAL_BOUND) -> ArchiveBatch | None:
    """Seal what there is to seal first, with a digest of numbers, which stays true when tests let time pass for rows."""
    first = await store.archive.first_unsealed(0)
    return None if first is None else await store.archive.seal(first, bound, DigestVersion.NUMBERS)


async def sealed(store: Store, bound: Bound = USUAL_BOUND) -> ArchiveBatch:
    """Seal what must be there."""
    batch = await seal(store, bound)
    assert batch is not None
    return batch


async def numbers_in(subject: Subject, batch: ArchiveBatch) -> list[int]:
    """The messages of a batch, ascending."""
    sql = f"SELECT sequence_number FROM archive WHERE export_batch = {batch.number} ORDER BY sequence_number"
    return [number for (number,) in await subject.execute(sql)]


def digest(numbers: Sequence[int]) -> str:
    """As whoever has a copy calculates it."""
    return sha256("".join(f"{number}\n" for number in sorted(numbers)).encode()).hexdigest()


def copy_of(batch: ArchiveBatch) -> Copy:
    """What an honest copy says."""
    return Copy(batch.number, batch.row_count, batch.digest)


# ---- sealing ---------------------------------------------------------------------------------------------------------


async def test_what_has_ended_is_sealed_with_number_count_and_digest(subject: Subject, queue: Queue) -> None:
    numbers = await end(subject, queue, 5)
    batch = await sealed(subject.store)
    assert (batch.number, batch.row_count, batch.digest) == (1, 5, digest(numbers))
    assert await numbers_in(subject, batch) == numbers
    ((latest,),) = await subject.execute("SELECT MAX(remove_at) FROM archive")
    assert batch.remove_at == latest
    assert is_close(batch.sealed_at, await subject.store.now())
    assert await subject.store.archive.batches(0, 10) == [batch]
    assert await seal(subject.store) is None


async def test_an_empty_archive_has_nothing_to_seal(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"body")
    assert await subject.store.archive.first_unsealed(0) is None
    assert await subject.store.archive.batches(0, 10) == []


async def test_batches_are_numbered_one_after_the_other_and_bounded(subject: Subject, queue: Queue) -> None:
    numbers = await end(subject, queue, 7)
    batches = [await sealed(subject.store, Bound(3)) for _ in range(3)]
    assert [batch.number for batch in batches] == [1, 2, 3]
    assert [batch.row_count for batch in batches] == [3, 3, 1]
    assert sorted([number for batch in batches for number in await numbers_in(subject, batch)]) == numbers
    assert await subject.store.archive.batches(0, 2) == batches[:2]
    assert await subject.store.archive.batches(2, 10) == batches[2:]


async def test_a_sealed_batch_never_changes(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 3)
    batch = await sealed(subject.store)
    rows = sorted(await subject.execute(f"SELECT {EVERYTHING} FROM archive"))
    await end(subject, queue, 2)
    assert (await sealed(subject.store)).row_count == 2
    assert sorted(await subject.execute(f"SELECT {EVERYTHING} FROM archive WHERE export_batch = 1")) == rows
    assert (await subject.store.archive.batches(0, 1)) == [batch]


async def test_a_batch_holds_what_is_to_be_removed_at_about_the_same_time(subject: Subject, queue: Queue) -> None:
    late = await end(subject, queue, 2, retention=2 * DAY)
    soon = await end(subject, queue, 2, retention=DAY)
    within_the_minute = await end(subject, queue, 1, retention=DAY + 50 * SECOND)
    after_it = await end(subject, queue, 1, retention=DAY + 70 * SECOND)
    batches = [await sealed(subject.store) for _ in range(3)]
    assert [await numbers_in(subject, batch) for batch in batches] == [soon + within_the_minute, after_it, late]


async def test_bodies_bound_a_batch_too(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 5)  # of four bytes each
    assert [(await sealed(subject.store, Bound(body_bytes=10))).row_count for _ in range(3)] == [2, 2, 1]


async def test_a_message_too_large_for_any_batch_is_one_of_its_own(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 2)
    assert [(await sealed(subject.store, Bound(body_bytes=3))).row_count for _ in range(2)] == [1, 1]


async def test_the_walk_goes_on_behind_a_stretch(subject: Subject, queue: Queue) -> None:
    (soon,) = await end(subject, queue, 1, retention=DAY)
    (late,) = await end(subject, queue, 1, retention=2 * DAY)
    first = await subject.store.archive.first_unsealed(0)
    assert first is not None
    assert (first.sequence_number, is_close(first.waited, 0)) == (soon, True)
    await subject.pass_time(20)
    second = await subject.store.archive.first_unsealed(first.remove_at + MINUTE)
    assert second is not None
    assert (second.sequence_number, is_close(second.waited, 20 * SECOND)) == (late, True)


async def test_what_somebody_else_has_sealed_meanwhile_is_left(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 2)
    seen = await subject.store.archive.first_unsealed(0)
    assert seen is not None
    await sealed(subject.store)
    await end(subject, queue, 2)
    assert await subject.store.archive.seal(seen) is None


@pytest.mark.behaviour("S2.10", "S2.11", "S2.32")
async def test_what_completes_while_it_is_sealed_is_in_one_batch_each(
    subject: Subject, queue: Queue, stores: list[Store]
) -> None:
    """Eight writers and two who seal: no message is lost, none is in two batches, and numbers come in order."""
    writers, rounds, together = 8, 12, 5

    async def write(store: Store) -> list[int]:
        ended: list[int] = []
        for _ in range(rounds):
            await store.send([draft(queue) for _ in range(together)])
            messages = await subject.claim(queue, together)
            done = await store.remove([completion(queue, message) for message in messages])
            ended += [message.sequence_number for message, gone in zip(messages, done, strict=True) if gone]
        return ended

    async def seal_until_done(store: Store) -> list[ArchiveBatch]:
        batches: list[ArchiveBatch] = []
        while not all(task.done() for task in writing):
            batches += [batch] if (batch := await seal(store, Bound(17))) else []
            await asyncio.sleep(0)  # a database in memory never waits
            known = await store.archive.batches(0, 1000)
            assert [one.number for one in known] == list(range(1, len(known) + 1))
        return batches

    writing = [asyncio.create_task(write(stores[place % 2])) for place in range(writers)]
    by_each = await asyncio.gather(*(seal_until_done(store) for store in stores))
    ended = sorted([number for task in writing for number in task.result()])
    batches = [batch for some in by_each for batch in some]
    for _ in bounded("every ended message is sealed", len(ended) + 1):
        batch = await seal(subject.store)
        if batch is None:
            break
        batches.append(batch)
    batches.sort(key=lambda batch: batch.number)
    assert len(ended) > writers * rounds  # a claim passes over what another one holds, so some may be left
    assert await subject.store.archive.batches(0, 1000) == batches
    assert sum(batch.row_count for batch in batches) == len(ended)
    assert sorted([number for batch in batches for number in await numbers_in(subject, batch)]) == ended
    assert all([digest(await numbers_in(subject, batch)) == batch.digest for batch in batches])


# ---- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.11", "S4.17")
async def test_a_batch_goes_as_a_whole_when_its_last_message_may(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 2, retention=HOUR)
    await end(subject, queue, 2, retention=HOUR + 40 * SECOND)
    batch = await sealed(subject.store)
    await subject.pass_time(3600 + 20)
    assert await subject.store.archive.forget(1) == 0
    await subject.pass_time(30)
    assert await subject.store.archive.forget(1) == 4
    assert await subject.execute("SELECT sequence_number FROM archive") == []
    (gone,) = await subject.store.archive.batches(0, 10)
    assert (gone.number, gone.removal) == (batch.number, RemovalCause.EXPIRED)
    assert is_close(gone.removed_at, await subject.store.now())
    assert await subject.store.archive.forget(1) == 0
    assert (await subject.store.archive.batches(0, 10)) == [gone]


async def test_what_was_not_sealed_stays_however_old(subject: Subject, queue: Queue) -> None:
    numbers = await end(subject, queue, 2, retention=SECOND)
    await subject.pass_time(3600)
    assert await subject.store.archive.forget(100) == 0
    assert await numbers_in(subject, await sealed(subject.store)) == numbers
    assert await subject.store.archive.forget(100) == 2


async def test_several_batches_go_at_once_up_to_what_was_asked_for(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 8, retention=SECOND)
    for _ in range(4):
        await sealed(subject.store, Bound(2))
    await subject.pass_time(60)
    assert await subject.store.archive.forget(3) == 4
    assert await subject.store.archive.forget(2) == 2
    assert await subject.store.archive.forget(3) == 2


async def test_a_removed_batch_is_remembered_for_a_year_and_its_number_for_ever(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 4, retention=SECOND)
    for _ in range(2):
        await sealed(subject.store, Bound(2))
    await subject.pass_time(60)
    await subject.store.archive.forget(100)
    await subject.pass_time(365 * 86_400)
    await subject.store.archive.forget(100)
    assert [batch.number for batch in await subject.store.archive.batches(0, 10)] == [1, 2]
    await subject.pass_time(2 * 86_400)
    await subject.store.archive.forget(100)
    assert [batch.number for batch in await subject.store.archive.batches(0, 10)] == [2]
    await end(subject, queue, 1)
    assert (await sealed(subject.store)).number == 3


async def test_a_token_is_known_for_an_hour_whatever_becomes_of_its_batch(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message, retention=SECOND)])
    await sealed(subject.store)
    await subject.pass_time(120)
    assert await subject.store.archive.forget(100) == 1
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert stone.outcome is Outcome.COMPLETED


# ---- trimming --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.18")
async def test_a_batch_goes_once_a_copy_of_it_is_proven(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 3)
    kept = await end(subject, queue, 1, retention=2 * DAY)
    batch = await sealed(subject.store)
    await sealed(subject.store)
    await subject.pass_time(3700)
    assert await subject.store.archive.trim(copy_of(batch)) is TrimResult.TRIMMED
    assert await subject.execute("SELECT sequence_number FROM archive") == [(kept[0],)]
    gone, other = await subject.store.archive.batches(0, 10)
    assert (gone.removal, is_close(gone.removed_at, await subject.store.now())) == (RemovalCause.TRIMMED, True)
    assert (other.removal, other.removed_at) == (None, None)
    assert await subject.store.archive.trim(copy_of(batch)) is TrimResult.ALREADY_REMOVED


async def test_nothing_goes_on_the_word_of_a_copy_that_differs(subject: Subject, queue: Queue) -> None:
    numbers = await end(subject, queue, 3)
    batch = await sealed(subject.store)
    await subject.pass_time(3700)
    for wrong in (
        Copy(batch.number, 2, batch.digest),
        Copy(batch.number, 3, digest(numbers[:2])),
        Copy(batch.number, 2, digest(numbers[:2])),
        Copy(batch.number, 0, digest([])),
    ):
        assert await subject.store.archive.trim(wrong) is TrimResult.DIFFERS
    assert await numbers_in(subject, batch) == numbers


async def test_the_rows_are_asked_and_not_what_was_noted_of_them(subject: Subject, queue: Queue) -> None:
    numbers = await end(subject, queue, 3)
    batch = await sealed(subject.store)
    await subject.pass_time(3700)
    await subject.execute(f"DELETE FROM archive WHERE sequence_number = {numbers[0]}")
    assert await subject.store.archive.trim(copy_of(batch)) is TrimResult.DIFFERS
    assert await numbers_in(subject, batch) == numbers[1:]


async def test_a_batch_that_never_was_is_unknown(subject: Subject) -> None:
    assert await subject.store.archive.trim(Copy(1, 0, digest([]))) is TrimResult.UNKNOWN


@pytest.mark.behaviour("S4.19")
async def test_messages_that_ended_within_the_hour_stay_as_tombstones(subject: Subject, queue: Queue) -> None:
    await end(subject, queue, 2)
    await subject.pass_time(3700)
    late = await subject.locked(queue)
    await subject.store.remove([completion(queue, late, retention=DAY - HOUR - 100 * SECOND)])
    batch = await sealed(subject.store)
    assert batch.row_count == 3
    await subject.pass_time(3590)
    assert await subject.store.archive.trim(copy_of(batch)) is TrimResult.TOO_YOUNG
    assert await subject.store.tombstones([token(late)]) != [None]
    await subject.pass_time(20)
    assert await subject.store.archive.trim(copy_of(batch)) is TrimResult.TRIMMED


async def test_of_several_who_remove_a_batch_one_does(subject: Subject, queue: Queue, stores: list[Store]) -> None:
    for _ in range(5):
        await end(subject, queue, 4, retention=2 * HOUR)
        batch = await sealed(subject.store)
        await subject.pass_time(2 * 3600 + 60)
        *trims, forgotten, again = await asyncio.gather(
            *(store.archive.trim(copy_of(batch)) for store in [*stores, *stores]),
            *(store.archive.forget(100) for store in stores),
        )
        assert set(trims) <= {TrimResult.TRIMMED, TrimResult.ALREADY_REMOVED}
        assert trims.count(TrimResult.TRIMMED) + (forgotten + again) // 4 == 1
        assert await numbers_in(subject, batch) == []
