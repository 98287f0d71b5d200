"""The statement that stores a message also counts it as accepted, so that a lost row shows in the sum."""

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Redrive, UnlockedRow, Withdrawal
from app.broker.ports.store import Store
from app.domain.instant import DAY, HOUR, MINUTE
from app.domain.message import Draft, MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.contract.store_fixture import StoreFixture, abandonment, completion, draft, numbers, retry_until_answered
from tests.virtual_clock import run_advancing

COUNT_COLUMNS = "SUM(accepted), SUM(moved), SUM(unarchived)"


async def counts(store_fixture: StoreFixture, queue: Queue) -> tuple[int, int, int]:
    """Return the accepted, moved and unarchived messages of a queue."""
    ((accepted, moved, unarchived),) = await store_fixture.execute(
        f"SELECT {COUNT_COLUMNS} FROM accepted_count WHERE queue_id = {queue.id}"
    )
    return int(accepted or 0), int(moved or 0), int(unarchived or 0)


async def assert_nothing_is_missing(store_fixture: StoreFixture, *queues: Queue) -> None:
    """Assert that each queue and day has as many messages as were accepted, and that each row has the queue's name."""
    for queue in queues:
        queue_counts = f"WHERE queue_id = {queue.id}"
        found = await store_fixture.execute(f"""
            SELECT SUM(entered), day FROM (
                SELECT accepted + moved - unarchived AS entered, day FROM accepted_count {queue_counts}
                UNION ALL
                SELECT -1, FLOOR(enqueued_at / {DAY}) FROM message {queue_counts} AND content_digest IS NOT NULL
                UNION ALL
                SELECT -1, FLOOR(enqueued_at / {DAY}) FROM archive {queue_counts} AND content_digest IS NOT NULL
            ) AS every GROUP BY day
        """)
        assert [total for total, _ in found if total] == []
        assert set(await store_fixture.execute(f"SELECT queue FROM accepted_count {queue_counts}")) <= {(queue.name,)}


async def test_stored_messages_count_by_queue_and_day(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    await store_fixture.store.send([draft(queue), draft(other), draft(queue, delay=HOUR)])
    await store_fixture.send(queue, b"another")
    today = await store_fixture.store.now() // DAY
    assert await counts(store_fixture, queue) == (3, 0, 0)
    assert await counts(store_fixture, other) == (1, 0, 0)
    assert set(await store_fixture.execute("SELECT day FROM accepted_count")) == {(today,)}
    await assert_nothing_is_missing(store_fixture, queue, other)


async def test_a_duplicate_does_not_count(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    one = draft(queue, message_id="one", duplicate_window=MINUTE)
    await store_fixture.store.send([one, one, draft(other), draft(queue, duplicate_window=MINUTE)])
    await store_fixture.store.send([one])
    assert (await counts(store_fixture, queue), await counts(store_fixture, other)) == ((2, 0, 0), (1, 0, 0))
    await assert_nothing_is_missing(store_fixture, queue, other)


async def test_a_repeated_attempt_counts_once(store_fixture: StoreFixture, queue: Queue) -> None:
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    drafts = [draft(queue), draft(queue)]
    for replayed in (False, True):
        assert (await store_fixture.store.send_or_replay(drafts, attempt)).replayed is replayed
    assert await counts(store_fixture, queue) == (2, 0, 0)
    await assert_nothing_is_missing(store_fixture, queue)


async def dead_letter(store_fixture: StoreFixture, queue: Queue) -> Sequence[int]:
    """Dead-letter all messages of a queue. Return their numbers."""
    messages = await store_fixture.claim(queue)
    dead = [abandonment(message, state=MessageState.DEAD_LETTERED) for message in messages]
    assert all(await store_fixture.store.move(dead))
    return numbers(messages)


async def test_a_redrive_to_another_queue_moves_accepted_messages(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    await store_fixture.send(queue, b"1", b"2", b"3")
    first, second, third = await dead_letter(store_fixture, queue)
    await store_fixture.execute(f"UPDATE message SET enqueued_at = enqueued_at - {DAY} WHERE sequence_number = {first}")
    await store_fixture.execute(f"UPDATE accepted_count SET accepted = 2 WHERE queue_id = {queue.id}")
    today = await store_fixture.store.now() // DAY
    await store_fixture.execute(
        "INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted) "
        f"VALUES (0, {queue.id}, {today - 1}, '{queue.name}', 1)"
    )
    rows = [UnlockedRow(number, queue.id, MessageState.DEAD_LETTERED) for number in (first, second, third)]
    redrives = [Redrive(rows[0], other.id), Redrive(rows[1], other.id), Redrive(rows[2], queue.id)]
    assert await store_fixture.store.redrive(redrives) == [True] * 3
    assert (await counts(store_fixture, queue), await counts(store_fixture, other)) == ((3, -2, 0), (0, 2, 0))
    await assert_nothing_is_missing(store_fixture, queue, other)
    await dead_letter(store_fixture, other)
    back = [Redrive(UnlockedRow(first, other.id, MessageState.DEAD_LETTERED), queue.id)]
    assert await store_fixture.store.redrive(back) == [True]
    assert (await counts(store_fixture, queue), await counts(store_fixture, other)) == ((3, -1, 0), (0, 1, 0))
    await assert_nothing_is_missing(store_fixture, queue, other)


async def test_messages_that_leave_without_a_row_in_the_archive_are_counted(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    for one in (queue, other):
        await store_fixture.send(one, b"1", b"2", b"3", b"4")
    kept, unarchived, *_ = await store_fixture.claim(queue, 2)
    (elsewhere,) = await store_fixture.claim(other, 1)
    settlements = [
        completion(queue, kept),
        completion(queue, unarchived, retention=0),
        completion(other, elsewhere, retention=0),
    ]
    assert await store_fixture.store.remove(settlements) == [True] * 3
    (waiting, *_) = await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    row = UnlockedRow(waiting.sequence_number, queue.id, MessageState.AVAILABLE)
    assert await store_fixture.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, 0)]) == [True]
    assert (await counts(store_fixture, queue), await counts(store_fixture, other)) == ((4, 0, 2), (4, 0, 1))
    await assert_nothing_is_missing(store_fixture, queue, other)


async def test_a_message_that_an_older_server_accepted_does_not_count(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    await store_fixture.send(queue, b"1", b"2")
    await store_fixture.execute("UPDATE message SET content_digest = NULL")
    await store_fixture.execute("DELETE FROM accepted_count")
    first, second = await store_fixture.claim(queue)
    dead = abandonment(first, state=MessageState.DEAD_LETTERED)
    assert await store_fixture.store.move([dead]) == [True]
    row = UnlockedRow(first.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(row, other.id)]) == [True]
    assert await store_fixture.store.remove([completion(queue, second, retention=0)]) == [True]
    assert await store_fixture.execute("SELECT * FROM accepted_count") == []


async def test_a_lost_row_is_missing_from_the_sum(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    await assert_nothing_is_missing(store_fixture, queue)
    await store_fixture.execute("DELETE FROM archive")
    with pytest.raises(AssertionError):
        await assert_nothing_is_missing(store_fixture, queue)


async def test_counts_stay_when_their_queue_is_deleted(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"1", b"2")
    assert await store_fixture.store.queues.delete(queue)
    await store_fixture.store.delete_expired(100)
    found = await store_fixture.execute("SELECT queue, accepted FROM accepted_count")
    assert [(name, int(accepted)) for name, accepted in found] == [(queue.name, 2)]


async def test_changes_of_counts_are_folded(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    for _ in range(3):
        await store_fixture.send(queue, b"1", b"2")
        await store_fixture.send(other, b"1")
    for _ in range(2):  # a folded row takes part in the next fold
        (message, *_) = await store_fixture.claim(queue, 1)
        await store_fixture.store.remove([completion(queue, message, retention=0)])
        await store_fixture.store.delete_expired(100)
    found = await store_fixture.execute("SELECT first_number, queue_id, accepted, unarchived FROM accepted_count")
    assert sorted(tuple(map(int, row)) for row in found) == [(0, queue.id, 6, 2), (0, other.id, 3, 0)]
    await assert_nothing_is_missing(store_fixture, queue, other)


@pytest.mark.behaviour("S2.10")
async def test_counts_are_exact_during_concurrent_sends_settlements_and_folds(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    """No sender waits for another one's count, and concurrent folds lose none."""
    other = await store_fixture.queue()

    def drafts(index: int) -> list[Draft]:
        window = MINUTE if index % 2 else 0
        queue_counts = [draft(target, message_id=f"{index % 5}", duplicate_window=window) for target in (queue, other)]
        return queue_counts if index % 3 else queue_counts[::-1]

    async def work(index: int) -> None:
        store = stores[index % len(stores)]
        for turn in range(8):
            await retry_until_answered(partial(store.send, drafts(index + turn)))
            messages = await store_fixture.claim(queue, 1)
            retention = 0 if turn % 2 else queue.settings.archive_retention
            await store.remove([completion(queue, message, retention=retention) for message in messages])
            if index == turn:
                await store.delete_expired(3)

    # A sender whose message id another transaction has locked retries by the clock of its process.
    await run_advancing(store_fixture.clock, asyncio.gather(*(work(index) for index in range(8))))
    await assert_nothing_is_missing(store_fixture, queue, other)
    await asyncio.gather(*(store.delete_expired(100) for store in stores))
    await assert_nothing_is_missing(store_fixture, queue, other)
    accepted, _, unarchived = await counts(store_fixture, queue)
    assert accepted > 30
    assert unarchived > 5
