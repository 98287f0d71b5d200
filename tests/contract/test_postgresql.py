"""What is particular to statements on PostgreSQL: plans, many callers, depths."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import pytest

from app.broker.ports import Attempt, Once
from app.domain.instant import HOUR
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.refusals import StoreUnavailable
from app.runtime.clock import SystemClock
from app.store.floors import Floor, Floors
from app.store.open import open_store
from app.store.pool import Pool
from app.store.postgresql import PostgresStore
from app.store.postgresql_attempts import receive
from app.store.postgresql_session import Session, address, connect
from app.store.rows import Row
from app.store.statements import Engine, load
from tests.bounds import bounded
from tests.contract.claims import WatchedClaims
from tests.contract.subject import (
    LOCK,
    TABLES,
    PostgresSubject,
    bodies,
    claim,
    completion,
    draft,
    numbers,
    token,
)

Result = TypeVar("Result")

GROWING = ("message", "archive", "export_batch", "settlement", "attempt", "recent_id")
"""Tables that may become large."""

WAITING_FOR_LONG = f"""
{PostgresSubject.waiting} AND query_start < clock_timestamp() - interval '100 milliseconds'
"""


@pytest.fixture
async def subject(postgres_url: str) -> AsyncIterator[PostgresSubject]:
    """A PostgreSQL store with nothing in it."""
    subject = PostgresSubject(postgres_url)
    await subject.begin()
    yield subject
    await subject.end()


def pool_of(subject: PostgresSubject) -> Pool[Session]:
    """The connections of the store."""
    assert isinstance(subject.store, PostgresStore)
    return subject.store._pool


# ---- plans -----------------------------------------------------------------------------------------------------------

FILL = """
INSERT INTO message (queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count, failure_count,
    lock_generation, message_id, body_kind, body)
SELECT -1, 1, 1, 4, n, n, 0, 0, 0, 'id', 0, '' FROM generate_series(1, 2000) AS n
"""
STATISTICS: dict[str, Sequence[str]] = {
    "never analyzed": (),
    "empty": ("ANALYZE",),
    "emptied": (FILL, "DELETE FROM message", "VACUUM ANALYZE"),
    "emptied but not shrunk": (FILL, "DELETE FROM message WHERE sequence_number % 2000 > 0", "ANALYZE"),
    "filled since": ("ANALYZE", FILL),
    "filled": (FILL, "ANALYZE"),
}


@pytest.mark.parametrize("past", STATISTICS)
async def test_every_plan_finds_rows_by_an_index_whatever_the_planner_believes(
    subject: PostgresSubject, past: str
) -> None:
    await subject.execute(f"TRUNCATE {', '.join(GROWING)}")
    for sql in STATISTICS[past]:
        await subject.execute(sql)
    wire = await connect(address(subject._url))
    for name, statement in load(Engine.POSTGRESQL).items():
        text, parameters = statement.numbered()
        await wire.execute(f"PREPARE {name} AS {text}")
        values = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        plan = "\n".join(row[0] for row in await wire.fetch(f"EXPLAIN EXECUTE {name}{values}"))
        assert not walks_a_whole_table(name, plan), f"{name}:\n{plan}"
        assert name in ANY_ENTRY_WILL_DO or not leaves_out_a_column(plan), f"{name}:\n{plan}"
    await wire.close()


FIRST_COLUMNS = {
    **{f"{table.name}_pkey": column.name for table in TABLES.values() for column in list(table.primary_key)[:1]},
    **{str(index.name): index.columns[0].name for table in TABLES.values() for index in table.indexes},
}
INDEX_COLUMNS = {
    str(index.name): [str(expression).split()[0].rpartition(".")[2] for expression in index.expressions]
    for table in TABLES.values()
    for index in table.indexes
}
WALKED_IN_ORDER = {"until_next_due", "orphaned_queues"}
"""Statements that want but the first entry of an index."""

ANY_ENTRY_WILL_DO = {"ready"}
"""Statements that stop at the first entry, which nearly always has what they ask for."""

SCAN = re.compile(rf"Index (?:Only )?Scan using (\w+) on (?:{'|'.join(GROWING)})\b.*\n(.*)")


def walks_a_whole_table(name: str, plan: str) -> bool:
    """Whether the plan reads a growing table, or one of its indexes, without a condition on the first column."""
    if re.search(rf"Seq Scan on ({'|'.join(GROWING)})\b|Hash Join|Merge Join|Bitmap", plan):
        return True
    walked = [
        index
        for index, condition in SCAN.findall(plan)
        if not re.search(rf"Index Cond: .*\b{FIRST_COLUMNS[index]}\b", condition)
    ]
    return bool(walked) and name not in WALKED_IN_ORDER


def leaves_out_a_column(plan: str) -> bool:
    """Whether a plan has a condition on a column of an index and none on one before it: then the search cannot begin
    or end there, and goes past every entry that the columns before leave.
    """
    for index, condition in SCAN.findall(plan):
        columns = INDEX_COLUMNS.get(index, ())
        named = [bool(re.search(rf"Index Cond: .*\b{column}\b", condition)) for column in columns]
        if named != sorted(named, reverse=True):
            return True
    return False


async def test_a_claim_goes_past_nothing_but_what_it_takes(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, *[b"waiting"] * 300)
    await subject.send(queue, *[b"scheduled"] * 300, delay=LOCK)
    watched = WatchedClaims(subject)
    assert len(await watched.claim(queue, 20)) == 20
    assert watched.passed == 0


# ---- many callers ----------------------------------------------------------------------------------------------------


async def test_claims_that_share_a_statement_are_served_in_order_of_arrival(subject: PostgresSubject) -> None:
    queues = [await subject.queue() for _ in range(3)]
    for queue in queues:
        await subject.send(queue, *[b"%d" % n for n in range(5)])
    wishes = [
        (queue, claim(queue, most, lock_duration=most * LOCK, receiver_id=f"receiver {most}"))
        for most in (2, 1, 3)
        for queue in queues
    ]
    taken = await asyncio.gather(*(subject.store.claim(wish) for _, wish in wishes))
    for (_, wish), messages in zip(wishes, taken, strict=True):
        first = {2: 0, 1: 2, 3: 3}[wish.most]
        assert bodies(messages) == [b"%d" % n for n in range(first, min(first + wish.most, 5))]
        for message in messages:
            assert message.receiver_id == wish.receiver_id
            assert message.queue_id == wish.queue_id
            assert 0 <= wish.lock_duration - ((message.locked_until or 0) - message.read_at) < LOCK


async def test_claims_of_more_than_a_statement_holds_are_all_served(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, *[b"body"] * 1000)
    taken = await asyncio.gather(*(subject.claim(queue, 700) for _ in range(3)))
    # Two statements at once pass over what the other one holds, so the shares are a matter of chance.
    assert sum(map(len, taken)) == 1000
    assert max(map(len, taken)) <= 700


async def test_two_who_wait_for_each_other_are_both_served(subject: PostgresSubject, queue: Queue) -> None:
    (one, other) = await subject.claim(queue, 2) if await subject.send(queue, b"1", b"2") else ()
    meeting = asyncio.Barrier(2)

    async def change(first: int, second: int) -> None:
        is_first_try = True

        async def work(session: Any) -> None:
            nonlocal is_first_try
            await session.change("rewrite", sequence_number=first, properties="{}")
            if is_first_try:
                is_first_try = False
                await meeting.wait()
            await session.change("rewrite", sequence_number=second, properties="{}")

        await pool_of(subject).transaction(work)

    pair = numbers([one, other])
    await asyncio.gather(change(*pair), change(*reversed(pair)))


# ---- depths ----------------------------------------------------------------------------------------------------------


async def test_what_adds_up_to_a_depth_is_folded_and_stays_the_same(subject: PostgresSubject, queue: Queue) -> None:
    for _ in range(5):
        await subject.send(queue, b"kept", b"later")
        await subject.send(queue, b"scheduled", delay=LOCK)
        (message,) = await subject.claim(queue, 1)
        await subject.store.remove([completion(queue, message)])
    for folding in (4, 1):
        await asyncio.gather(*(subject.store.forget(100) for _ in range(folding)))
        counts = (await subject.store.queues.counts([queue.id]))[queue.id]
        assert (counts.available, counts.scheduled) == (5, 5)
        assert await subject.store.queues.total(queue.id) == 10
    assert await subject.execute("SELECT queue_id, total, scheduled FROM depth") == [(queue.id, 10, 5)]


async def test_the_depth_of_a_deleted_queue_is_forgotten(subject: PostgresSubject, queue: Queue) -> None:
    await subject.send(queue, b"orphan")
    await subject.store.queues.delete(queue)
    await subject.store.forget(100)
    assert await subject.execute("SELECT FROM depth") == []


# ---- sealing ---------------------------------------------------------------------------------------------------------


async def test_whoever_dies_while_sealing_has_sealed_nothing(subject: PostgresSubject) -> None:
    """The rows are numbered and the batch is not noted yet when the connection ends."""
    queue = await subject.queue()
    for _ in range(3):
        message = await subject.locked(queue)
        assert await subject.store.remove([completion(queue, message)]) == [True]
    first = await subject.store.archive.first_unsealed(0)
    assert first is not None
    await subject.execute("BEGIN")
    await subject.execute("LOCK TABLE export_batch IN SHARE MODE")
    sealing = asyncio.create_task(subject.store.archive.seal(first))
    await subject.until_somebody_waits()
    await subject.execute(f"SELECT pg_terminate_backend(pid) FROM ({subject.waiting}) AS waiting")
    with pytest.raises(StoreUnavailable):
        await sealing
    await subject.execute("COMMIT")
    assert await subject.execute("SELECT count(export_batch) FROM archive") == [(0,)]
    batch = await subject.store.archive.seal(first)
    assert batch is not None
    assert (batch.number, batch.row_count) == (1, 3)


# ---- a transaction that the server has undone ------------------------------------------------------------------------


class CancelledLater:
    """A session whose second claim the server cancels, as it does with a statement that takes too long."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._claims = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        self._claims += name == "claim"
        if name == "claim" and self._claims == 2:
            await self._session._wire.execute("SET LOCAL statement_timeout = '1ms'")
            return await self._session._ask(self._session._wire.fetch("SELECT pg_sleep(60)"))
        return await self._session.fetch(name, **values)


async def test_an_attempt_whose_transaction_was_undone_answers_that_the_store_is_unavailable(
    subject: PostgresSubject, queue: Queue
) -> None:
    """It had served one of two messages, which the server has taken back with everything else."""
    await subject.send(queue, b"body")
    one, floors = Attempt(b"k" * 32, b"f" * 32, HOUR), Floors()
    floors._floors[queue.id] = Floor(time.monotonic(), 0)

    async def work(session: Session) -> Once[list[Message]]:
        cancelled: Any = CancelledLater(session)
        return await receive(cancelled, floors, subject.clock, claim(queue, 2), one)

    with pytest.raises(StoreUnavailable):
        await pool_of(subject).transaction(work)
    once = await subject.store.claim_once(claim(queue, 2), one)
    assert not once.replayed
    assert bodies(once.answer) == [b"body"]


async def test_an_attempt_waits_for_a_table_as_any_request_does(subject: PostgresSubject, queue: Queue) -> None:
    """Maintenance of a table takes it for moments. It is not another request that makes the same attempt."""
    await subject.send(queue, b"body")
    first, second = (Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(2))
    async with subject.holding("LOCK TABLE message"):
        sending = asyncio.ensure_future(subject.store.send_once([draft(queue)], first))
        receiving = asyncio.ensure_future(subject.store.claim_once(claim(queue), second))
        for _ in bounded("both wait"):
            if len(await subject.execute(WAITING_FOR_LONG)) == 2:
                break
    assert not (await sending).replayed
    assert not (await receiving).replayed


async def test_what_is_asked_of_a_closed_store_answers_that_it_is_unavailable(
    postgres_url: str, queue: Queue, subject: PostgresSubject
) -> None:
    message = await subject.locked(queue)
    late = await open_store(postgres_url, SystemClock(), 1)
    await late.close()
    for asked in (
        late.send([draft(queue)]),
        late.claim(claim(queue)),
        late.claim_once(claim(queue), Attempt(b"k" * 32, b"f" * 32, HOUR)),
        late.remove([completion(queue, message)]),
        late.held([token(message)]),
        late.read(queue.id, message.sequence_number),
    ):
        with pytest.raises(StoreUnavailable):
            await asked
