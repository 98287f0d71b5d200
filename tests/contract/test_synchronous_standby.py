"""With synchronous standbys of PostgreSQL, an answer read from stored results waits for them, as the first answer did."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from app.broker.access.keys import revoke_key
from app.broker.administration.move import cancel_move, start_move
from app.broker.administration.queues import delete_queue, put_queue, reload_queue
from app.broker.ports.attempts import Attempt
from app.broker.topics.topics import all_topics, delete, put
from app.domain.instant import HOUR, MINUTE
from app.domain.move_task import MoveRequest
from app.domain.queue import Queue
from app.domain.refusals import NotFound, StoreUnavailable
from app.domain.topic import TopicSettings
from app.domain.transaction import TransactionKey
from app.domain.work_unit import WorkUnit
from app.runtime.clock import SystemClock
from app.store.migrate import migrate
from app.store.open import open_store
from tests.brokers import build_broker
from tests.contract.store_fixture import PostgresqlFixture, claim, completion, draft, token
from tests.databases import RunResources
from tests.servers import PostgresServer, ServerProcess
from tests.virtual_clock import VirtualClock

pytestmark = pytest.mark.full

STANDBYS = "ALTER SYSTEM SET synchronous_standby_names = '{}'"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
COMMIT = "SELECT pg_logical_emit_message(TRUE, 'test', '')"
"""A transaction that writes to the WAL, and nothing else."""

Repeat = Callable[[], Awaitable[Any]]


class Cluster:
    """A primary with a store, and standbys that can be made synchronous and never answer."""

    def __init__(self, fixture: PostgresqlFixture, queue: Queue) -> None:
        self.fixture = fixture
        self.store: Any = fixture.store
        self.queue = queue

    async def require_standbys(self, names: str) -> None:
        """Let commits wait for these standbys, none if the name is empty."""
        await self.fixture.execute(STANDBYS.format(names))
        await self.fixture.execute("SELECT pg_reload_conf()")
        while await self.fixture.execute("SHOW synchronous_standby_names") != [(names,)]:
            pass  # this connection reads the setting with its next statement
        while names and not await self._commits_wait():
            pass  # the checkpointer tells all connections, and may read the setting later

    async def _commits_wait(self) -> bool:
        """Return whether a commit waits for standbys, and end its wait."""
        connection = await asyncpg.connect(self.fixture._url)
        commit = asyncio.ensure_future(connection.execute(COMMIT))
        waiting: list[Any] = []
        while not (waiting or commit.done()):
            waiting = await self.fixture.execute(WAITING)
        for (pid,) in waiting:
            await self.fixture.execute(f"SELECT pg_cancel_backend({pid})")
        await commit
        await connection.close()
        return bool(waiting)

    async def end_wait(self, repeated: asyncio.Task[Any], function: str) -> None:
        """Wait until the answer waits for standbys, and end this wait as an administrator does."""
        while not (waiting := await self.fixture.execute(WAITING)):
            assert not repeated.done(), f"answered without the standbys: {repeated.result()}"
        await self.fixture.execute(f"SELECT {function}({waiting[0][0]})")


@pytest.fixture(scope="module")
def primary(request: pytest.FixtureRequest, run_resources: RunResources) -> Iterator[ServerProcess]:
    """A PostgreSQL of its own, because this setting is valid for all of its databases."""
    request.getfixturevalue("require_server")("postgresql")
    server: ServerProcess = PostgresServer(run_resources.new_directory())
    server.start()
    migrate(server.url)
    yield server
    server.kill()


@pytest.fixture
async def cluster(primary: ServerProcess) -> AsyncIterator[Cluster]:
    """The store on the primary, with an empty queue."""
    fixture = PostgresqlFixture(primary.url)
    await fixture.open()
    cluster = Cluster(fixture, await fixture.queue())
    yield cluster
    await cluster.require_standbys("")
    await fixture.close()


def new_attempt() -> Attempt:
    """An attempt that no test has used."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)


async def repeated_send(cluster: Cluster) -> Repeat:
    """A send with an Idempotency-Key."""
    attempt, drafts = new_attempt(), [draft(cluster.queue)]
    await cluster.store.send_or_replay(drafts, attempt)
    return lambda: cluster.store.send_or_replay(drafts, attempt)


async def duplicate_send(cluster: Cluster) -> Repeat:
    """A send with a message id that the queue knows."""
    drafts = [draft(cluster.queue, message_id="twice", duplicate_window=HOUR)]
    await cluster.store.send(drafts)
    return lambda: cluster.store.send(drafts)


async def repeated_receive(cluster: Cluster) -> Repeat:
    """A receive with an Idempotency-Key."""
    attempt = new_attempt()
    await cluster.store.send([draft(cluster.queue)])
    await cluster.store.claim_or_replay(claim(cluster.queue), attempt)
    return lambda: cluster.store.claim_or_replay(claim(cluster.queue), attempt)


async def repeated_settlement(cluster: Cluster) -> Repeat:
    """A read of the tombstone of a completed delivery."""
    message = await cluster.fixture.locked(cluster.queue)
    assert await cluster.store.remove([completion(cluster.queue, message)]) == [True]
    return lambda: cluster.store.tombstones([token(message)])


async def repeated_unit(cluster: Cluster) -> Repeat:
    """A unit of settlements and sends, as executes, publishes and commits are."""
    attempt, unit = new_attempt(), WorkUnit(drafts=[draft(cluster.queue)])
    await cluster.store.execute(unit, attempt)
    return lambda: cluster.store.execute(unit, attempt)


async def earlier_result(cluster: Cluster) -> Repeat:
    """A read of the first try's result, before a repeat is refused."""
    attempt, unit = new_attempt(), WorkUnit(drafts=[draft(cluster.queue)])
    await cluster.store.execute(unit, attempt)
    return lambda: cluster.store.find_execution_result(attempt)


async def committed(cluster: Cluster) -> TransactionKey:
    """Commit a transaction with a send."""
    key = TransactionKey(secrets.token_hex(16), "client")
    transactions = cluster.store.transactions
    await transactions.open(key, MINUTE, 1000, 1000)
    await transactions.join_sends(key, [(cluster.queue.name, draft(cluster.queue))])
    await transactions.commit(key)
    return key


async def repeated_commit(cluster: Cluster) -> Repeat:
    """The commit of a transaction."""
    key = await committed(cluster)
    return lambda: cluster.store.transactions.commit(key)


async def outcome_of_transaction(cluster: Cluster) -> Repeat:
    """A read of a transaction that has ended."""
    key = await committed(cluster)
    return lambda: cluster.store.transactions.find(key)


async def outcome_of_offer(cluster: Cluster) -> Repeat:
    """A synchronous sender's read of the settlement of its message."""
    unit = WorkUnit(drafts=[draft(cluster.queue, ttl=MINUTE, offer_retention=HOUR)])
    number = (await cluster.store.execute(unit, None)).result.receipts[0].sequence_number
    await cluster.store.withdraw_offer(number)
    return lambda: cluster.store.read_offer(number)


async def repeated_change_of_a_queue(cluster: Cluster) -> Repeat:
    """A PUT of the settings that a queue has."""
    broker = build_broker(cluster.store, VirtualClock())
    return lambda: put_queue(broker.administration, cluster.queue.name, cluster.queue.settings)


async def repeated_change_of_a_topic(cluster: Cluster) -> Repeat:
    """A PUT of the settings that a topic has."""
    topics, name = all_topics(build_broker(cluster.store, VirtualClock()).topics), secrets.token_hex(8)
    await put(topics, name, TopicSettings())
    return lambda: put(topics, name, TopicSettings())


async def repeated_deletion_of_a_queue(cluster: Cluster) -> Repeat:
    """The deletion of a queue that is deleted."""
    broker, queue = build_broker(cluster.store, VirtualClock()), await cluster.fixture.queue()
    await delete_queue(broker.administration, queue)
    return lambda: refusal_of(reload_queue(broker.administration, queue.name))


async def repeated_deletion_of_a_topic(cluster: Cluster) -> Repeat:
    """The deletion of a topic that is deleted."""
    topics = all_topics(build_broker(cluster.store, VirtualClock()).topics)
    return lambda: refusal_of(delete(topics, "deleted"))


async def repeated_revocation(cluster: Cluster) -> Repeat:
    """The revocation of a key that is revoked."""
    return lambda: refusal_of(revoke_key(cluster.store.keys, "0" * 16))


async def repeated_cancellation(cluster: Cluster) -> Repeat:
    """The cancellation of a move task that is cancelled."""
    broker, target = build_broker(cluster.store, VirtualClock()), await cluster.fixture.queue()
    task = await start_move(broker.administration, cluster.queue, MoveRequest(target.name, (target.id,)))
    await cancel_move(broker.administration, cluster.queue, task.id)
    return lambda: cancel_move(broker.administration, cluster.queue, task.id)


async def refusal_of(request: Awaitable[object]) -> NotFound:
    """Return the refusal of a request for what is not there."""
    with pytest.raises(NotFound) as refused:
        await request
    return refused.value


@pytest.mark.parametrize(
    "road",
    [
        repeated_change_of_a_queue,
        repeated_change_of_a_topic,
        repeated_deletion_of_a_queue,
        repeated_deletion_of_a_topic,
        repeated_revocation,
        repeated_cancellation,
        repeated_send,
        duplicate_send,
        repeated_receive,
        repeated_settlement,
        repeated_unit,
        earlier_result,
        repeated_commit,
        outcome_of_transaction,
        outcome_of_offer,
    ],
)
async def test_an_answer_from_what_is_stored_waits_for_the_standbys(
    cluster: Cluster, road: Callable[[Cluster], Awaitable[Repeat]]
) -> None:
    repeat = await road(cluster)
    answer = await repeat()
    await cluster.require_standbys("away")
    repeated = asyncio.ensure_future(repeat())
    await cluster.end_wait(repeated, "pg_cancel_backend")
    with pytest.raises(StoreUnavailable, match="the synchronous standbys may not have it"):
        await repeated
    await cluster.require_standbys("")
    assert type(await repeat()) is type(answer)


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_a_change_whose_wait_for_standbys_was_ended_is_not_acknowledged(cluster: Cluster, function: str) -> None:
    await cluster.require_standbys("away")
    sent = asyncio.ensure_future(cluster.store.send([draft(cluster.queue)]))
    await cluster.end_wait(sent, function)
    with pytest.raises(StoreUnavailable):
        await sent
    await cluster.require_standbys("")
    assert len(await cluster.fixture.claim(cluster.queue)) == 1


async def test_a_connection_with_a_cancelled_wait_is_given_up(primary: ServerProcess, cluster: Cluster) -> None:
    store: Any = await open_store(primary.url, SystemClock(), connections=1)
    backend = await store._pool.run(lambda session: session._connection.fetch("SELECT pg_backend_pid()"))
    await cluster.require_standbys("away")
    sent = asyncio.ensure_future(store.send([draft(cluster.queue)]))
    await cluster.end_wait(sent, "pg_cancel_backend")
    with pytest.raises(StoreUnavailable):
        await sent
    await cluster.require_standbys("")
    assert await store._pool.run(lambda session: session._connection.fetch("SELECT pg_backend_pid()")) != backend
    await store.close()


async def test_without_standbys_a_repeat_writes_nothing(cluster: Cluster) -> None:
    repeat = await repeated_settlement(cluster)
    connection = await asyncpg.connect(cluster.fixture._url)
    before = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
    await repeat()
    assert await connection.fetchval("SELECT pg_current_wal_insert_lsn()") == before
    await connection.close()


async def test_a_process_registers_while_the_standbys_are_away(cluster: Cluster) -> None:
    await cluster.require_standbys("away")
    await cluster.store.acquire_shared()
    changed = await cluster.store.queues.by_name(cluster.queue.name)
    assert changed.lock_version != cluster.queue.lock_version


async def test_a_store_says_whether_its_answers_wait_for_standbys(cluster: Cluster) -> None:
    assert not await cluster.store.is_replicated()
    await cluster.require_standbys("away")
    assert await cluster.store.is_replicated()
