"""Particular to statements on PostgreSQL: plans, shared statements, depths."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, TypeVar

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.settling import Extension
from app.domain.history import Event
from app.domain.instant import HOUR
from app.domain.message import Message
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import NO_EXPIRED_GENERATION, fence_above
from app.runtime.clock import SystemClock
from app.store.open import ignore_batches, open_store
from app.store.pooled.pool import Pool
from app.store.postgresql import receiving
from app.store.postgresql.connect import connect, parse_address
from app.store.postgresql.dialect import DIALECT
from app.store.postgresql.scan_bounds import ScanBound, ScanBounds
from app.store.postgresql.session import PostgresqlSession, PreparedStatement
from app.store.postgresql.store import PostgresqlStore
from app.store.shared.rows import Row
from tests.bounds import bounded
from tests.contract.claim_recorder import ClaimRecorder
from tests.contract.store_fixture import (
    LOCK_DURATION,
    TABLES,
    PostgresqlFixture,
    abandonment,
    bodies,
    claim,
    completion,
    draft,
    numbers,
    token,
)

Result = TypeVar("Result")

GROWING = (
    "message",
    "archive",
    "archive_seal",
    "restorable",
    "export_batch",
    "settlement",
    "attempt",
    "recent_id",
    "message_event",
    "state",
    "state_version",
)
"""Tables that may become large."""

LONG_WAITS = f"""
{PostgresqlFixture.blocked_query} AND query_start < clock_timestamp() - interval '100 milliseconds'
"""


@pytest.fixture
async def store_fixture(postgres_url: str) -> AsyncIterator[PostgresqlFixture]:
    """An empty PostgreSQL store."""
    store_fixture = PostgresqlFixture(postgres_url)
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


def pool_of(store_fixture: PostgresqlFixture) -> Pool[PostgresqlSession]:
    """Return the pool of the store."""
    assert isinstance(store_fixture.store, PostgresqlStore)
    return store_fixture.store._pool


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
async def test_every_plan_finds_rows_by_an_index_with_any_statistics(
    store_fixture: PostgresqlFixture, past: str
) -> None:
    await store_fixture.execute(f"TRUNCATE {', '.join(GROWING)}")
    for sql in STATISTICS[past]:
        await store_fixture.execute(sql)
    for name, plan in (await plans_of_statements(store_fixture)).items():
        assert name in BACKGROUND_JOINS or not scans_whole_table(name, plan), f"{name}:\n{plan}"
        assert name in UNORDERED_SCANS or not skips_index_column(plan), f"{name}:\n{plan}"


async def plans_of_statements(store_fixture: PostgresqlFixture) -> dict[str, str]:
    """Return the plan of each statement that the store runs."""
    plans: dict[str, str] = {}
    connection = await connect(parse_address(store_fixture._url))
    for name, statement in DIALECT.statements.items():
        text, parameters = statement.with_numbered_params()
        await connection.execute(f"PREPARE {name} AS {text}")
        values = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        plans[name] = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE {name}{values}"))
    await connection.close()
    return plans


FIRST_COLUMNS = {
    **{f"{table.name}_pkey": column.name for table in TABLES.values() for column in list(table.primary_key)[:1]},
    **{str(index.name): index.columns[0].name for table in TABLES.values() for index in table.indexes},
    # Its first column has two values, so a condition on it alone reads every message of a group.
    "message_group": "queue_id",
    "state_state_key_key": "state_key",
}
INDEX_COLUMNS = {
    str(index.name): [str(expression).split()[0].rpartition(".")[2] for expression in index.expressions]
    for table in TABLES.values()
    for index in table.indexes
}
ORDERED_SCANS = {"until_next_due", "orphaned_queues", "next_due_at"}
"""Statements that need only the first entries of an index."""

UNORDERED_SCANS = {"claimable_queues"}
"""Statements that stop at the first entry, which nearly always matches."""

BACKGROUND_JOINS = {"versions_of_deleted"}
"""Statements of the removal of versions, which runs in the background and in one process at a time."""

SCAN = re.compile(rf"Index (?:Only )?Scan using (\w+) on (?:{'|'.join(GROWING)})\b.*\n(.*)")


def scans_whole_table(name: str, plan: str) -> bool:
    """Return whether the plan reads a growing table, or one of its indexes, without a condition on the first column."""
    if re.search(rf"Seq Scan on ({'|'.join(GROWING)})\b|Hash Join|Merge Join|Bitmap", plan):
        return True
    walked = [
        index
        for index, condition in SCAN.findall(plan)
        if not re.search(rf"Index Cond: .*\b{FIRST_COLUMNS[index]}\b", condition)
    ]
    return bool(walked) and name not in ORDERED_SCANS


def skips_index_column(plan: str) -> bool:
    """Return whether a plan has a condition on a column of an index and none on an earlier column. Then the search
    cannot begin or end there, and reads every entry that the earlier columns leave.
    """
    for index, condition in SCAN.findall(plan):
        columns = INDEX_COLUMNS.get(index, ())
        named = [bool(re.search(rf"Index Cond: .*\b{column}\b", condition)) for column in columns]
        if named != sorted(named, reverse=True):
            return True
    return False


async def test_a_claim_skips_no_index_entries(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"waiting"] * 300)
    await store_fixture.send(queue, *[b"scheduled"] * 300, delay=LOCK_DURATION)
    watched = ClaimRecorder(store_fixture)
    assert len(await watched.claim(queue, 20)) == 20
    assert watched.skipped == 0


# ---- shared statements -----------------------------------------------------------------------------------------------


async def test_claims_that_share_a_statement_are_served_in_order_of_arrival(store_fixture: PostgresqlFixture) -> None:
    queues = [await store_fixture.queue() for _ in range(3)]
    for queue in queues:
        await store_fixture.send(queue, *[b"%d" % n for n in range(5)])
    claims = [
        (queue, claim(queue, most, lock_duration=most * LOCK_DURATION, receiver_id=f"receiver {most}"))
        for most in (2, 1, 3)
        for queue in queues
    ]
    taken = await asyncio.gather(*(store_fixture.store.claim(one_claim) for _, one_claim in claims))
    for (_, one_claim), messages in zip(claims, taken, strict=True):
        first = {2: 0, 1: 2, 3: 3}[one_claim.max_messages]
        assert bodies(messages) == [b"%d" % n for n in range(first, min(first + one_claim.max_messages, 5))]
        for message in messages:
            assert message.receiver_id == one_claim.receiver_id
            assert message.queue_id == one_claim.queue_id
            assert 0 <= one_claim.lock_duration - ((message.locked_until or 0) - message.read_at) < LOCK_DURATION


async def test_claims_beyond_the_limit_of_a_statement_are_all_served(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, *[b"body"] * 1000)
    taken = await asyncio.gather(*(store_fixture.claim(queue, 700) for _ in range(3)))
    # Two concurrent statements skip each other's locked rows, so the shares vary.
    assert sum(map(len, taken)) == 1000
    assert max(map(len, taken)) <= 700


async def test_deadlocked_transactions_are_both_served(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    (one, other) = await store_fixture.claim(queue, 2) if await store_fixture.send(queue, b"1", b"2") else ()
    meeting = asyncio.Barrier(2)

    async def change(first: int, second: int) -> None:
        is_first_try = True

        async def work(session: Any) -> None:
            nonlocal is_first_try
            await session.change("change_properties", sequence_number=first, properties="{}")
            if is_first_try:
                is_first_try = False
                await meeting.wait()
            await session.change("change_properties", sequence_number=second, properties="{}")

        await pool_of(store_fixture).transaction(work)

    pair = numbers([one, other])
    await asyncio.gather(change(*pair), change(*reversed(pair)))


class NamingSession(PostgresqlSession):
    """A session that records the names of the statements that it runs."""

    names: ClassVar[list[str]] = []

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        self.names.append(name)
        return await super().fetch(name, **values)


async def test_a_single_caller_runs_the_statements_for_one(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    statements = {name: PreparedStatement(statement) for name, statement in DIALECT.statements.items()}

    async def new_session() -> PostgresqlSession:
        return NamingSession(await connect(parse_address(store_fixture._url)), statements)

    NamingSession.names.clear()
    store = PostgresqlStore(Pool(new_session, 1), None, store_fixture.clock, ignore_batches)
    await store.send([draft(queue)])
    (message,) = await store.claim(claim(queue, 1))
    await store.extend([Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)])
    await store.move([abandonment(message, fence=fence_above(NO_EXPIRED_GENERATION))])
    (message,) = await store.claim(claim(queue, 1))
    await store.remove([completion(queue, message)])
    assert NamingSession.names == ["send_one", "claim_one", "extend_one", "move_one", "claim_one", "remove_one"]
    await store.close()


async def test_a_message_with_a_history_is_sent_claimed_and_removed_by_one_statement_each(
    store_fixture: PostgresqlFixture,
) -> None:
    recorded = await store_fixture.queue(QueueSettings(history=True))
    statements = {name: PreparedStatement(statement) for name, statement in DIALECT.statements.items()}

    async def new_session() -> PostgresqlSession:
        return NamingSession(await connect(parse_address(store_fixture._url)), statements)

    NamingSession.names.clear()
    store = PostgresqlStore(Pool(new_session, 1), None, store_fixture.clock, ignore_batches)
    await store.send([draft(recorded, keeps_history=True)])
    (message,) = await store.claim(claim(recorded, 1, keeps_history=True))
    await store.remove([completion(recorded, message, keeps_history=True)])
    assert NamingSession.names == ["send_recorded_one", "claim_recorded_one", "remove_recorded_one"]
    await store.close()
    events = await store_fixture.store.history(recorded.id, message.sequence_number, 0, 10)
    assert [event.event for event in events] == [Event.SENT, Event.DELIVERED, Event.SETTLED]


async def test_a_single_claim_locks_no_row_but_its_own(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    first, second, third = await store_fixture.send(queue, b"held", b"taken", b"free")
    async with store_fixture.open_transaction(f"SELECT FROM message WHERE sequence_number = {first} FOR UPDATE"):

        async def work(session: PostgresqlSession) -> list[tuple[int]]:
            (claimed,) = await receiving.claim(session, ScanBounds(), store_fixture.clock, [claim(queue, 1)])
            assert not isinstance(claimed, Exception)
            assert numbers(claimed) == [second]
            return await store_fixture.execute(
                "SELECT sequence_number FROM message ORDER BY sequence_number FOR UPDATE SKIP LOCKED"
            )

        assert await pool_of(store_fixture).transaction(work) == [(third,)]


# ---- depths ----------------------------------------------------------------------------------------------------------


async def test_folding_the_rows_of_a_depth_keeps_the_depth(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    for _ in range(5):
        await store_fixture.send(queue, b"kept", b"later")
        await store_fixture.send(queue, b"scheduled", delay=LOCK_DURATION)
        (message,) = await store_fixture.claim(queue, 1)
        await store_fixture.store.remove([completion(queue, message)])
    for folding in (4, 1):
        await asyncio.gather(*(store_fixture.store.delete_expired(100) for _ in range(folding)))
        counts = (await store_fixture.store.queues.counts([queue.id]))[queue.id]
        assert (counts.available, counts.scheduled) == (5, 5)
        assert await store_fixture.store.queues.total(queue.id) == 10
    assert await store_fixture.execute("SELECT queue_id, total, scheduled FROM depth") == [(queue.id, 10, 5)]


async def test_the_depth_of_a_deleted_queue_is_deleted(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"orphan")
    await store_fixture.store.queues.delete(queue)
    await store_fixture.store.delete_expired(100)
    assert await store_fixture.execute("SELECT FROM depth") == []


# ---- sealing ---------------------------------------------------------------------------------------------------------


async def test_a_process_that_crashes_while_sealing_has_sealed_nothing(store_fixture: PostgresqlFixture) -> None:
    """The rows are numbered and the batch is not recorded yet when the connection ends."""
    queue = await store_fixture.queue()
    for _ in range(3):
        message = await store_fixture.locked(queue)
        assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    await store_fixture.execute("BEGIN")
    await store_fixture.execute("LOCK TABLE export_batch IN SHARE MODE")
    sealing = asyncio.create_task(store_fixture.store.archive.seal(first))
    await store_fixture.wait_until_blocked()
    await store_fixture.execute(f"SELECT pg_terminate_backend(pid) FROM ({store_fixture.blocked_query}) AS waiting")
    with pytest.raises(StoreUnavailable):
        await sealing
    await store_fixture.execute("COMMIT")
    assert await store_fixture.execute("SELECT count(export_batch) FROM archive_seal") == [(0,)]
    batch = await store_fixture.store.archive.seal(first)
    assert batch is not None
    assert (batch.number, batch.row_count) == (1, 3)


# ---- a transaction that the server has rolled back -------------------------------------------------------------------


CLAIM_STATEMENTS = ("claim", "claim_one")


class CancelsAfterFetch:
    """A session in which the server cancels the second claim, as it does with a statement that takes too long."""

    def __init__(self, session: PostgresqlSession) -> None:
        self._session = session
        self._claims = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        is_claim = name in CLAIM_STATEMENTS
        self._claims += is_claim
        if is_claim and self._claims == 2:
            await self._session._connection.execute("SET LOCAL statement_timeout = '1ms'")
            return await self._session._await_answer(self._session._connection.fetch("SELECT pg_sleep(60)"))
        return await self._session.fetch(name, **values)


async def test_an_attempt_with_a_rolled_back_transaction_is_unavailable(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    """Its scan above the bound has found nothing. The server cancels the one below, and rolls the attempt back."""
    await store_fixture.send(queue, b"body")
    store, one = store_fixture.store, Attempt(b"k" * 32, b"f" * 32, HOUR)
    bound = store._scan_bounds._bounds[queue.id] = ScanBound(time.monotonic(), 0)
    bound.positions = [(await store.now() + HOUR, 0)] * len(bound.positions)

    async def work(session: PostgresqlSession) -> list[Message]:
        cancelled: Any = CancelsAfterFetch(session)
        assert await store.begin_attempt(cancelled, one) is None
        return await store.claim_within(cancelled, claim(queue, 2))

    with pytest.raises(StoreUnavailable):
        await pool_of(store_fixture).transaction(work)
    once = await store.claim_or_replay(claim(queue, 2), one)
    assert not once.replayed
    assert bodies(once.result) == [b"body"]


async def test_an_attempt_waits_for_a_table_as_any_request_does(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    """Maintenance locks a table for moments. It is not another request with the same attempt."""
    await store_fixture.send(queue, b"body")
    first, second = (Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(2))
    async with store_fixture.open_transaction("LOCK TABLE message"):
        sending = asyncio.ensure_future(store_fixture.store.send_or_replay([draft(queue)], first))
        receiving = asyncio.ensure_future(store_fixture.store.claim_or_replay(claim(queue), second))
        for _ in bounded("both wait"):
            if len(await store_fixture.execute(LONG_WAITS)) == 2:
                break
    assert not (await sending).replayed
    assert not (await receiving).replayed


async def test_a_closed_store_is_unavailable(postgres_url: str, queue: Queue, store_fixture: PostgresqlFixture) -> None:
    message = await store_fixture.locked(queue)
    late = await open_store(postgres_url, SystemClock(), 1)
    await late.close()
    for request in (
        late.send([draft(queue)]),
        late.claim(claim(queue)),
        late.claim_or_replay(claim(queue), Attempt(b"k" * 32, b"f" * 32, HOUR)),
        late.remove([completion(queue, message)]),
        late.locked_messages([token(message)]),
        late.read(queue.id, message.sequence_number),
    ):
        with pytest.raises(StoreUnavailable):
            await request
