"""Two replicas, one without a connection to Redis: a lock that it revokes is not renewed through the other one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from redis.asyncio import Redis

from app.broker.administration.purge import purge
from app.broker.administration.queues import change_queue, delete_queue, reload_queue
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.renew import RenewedLock, renew
from app.broker.settling.revoke_locks import revoke_locks
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import LockLost, LossCause, MessageBusy, MessageNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from app.locks.connect import connect
from app.locks.redis_connection import RedisConnection
from app.locks.redis_lock_store import RedisLockStore
from app.runtime.clock import SystemClock
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture
from tests.locks.lock_records import LockRecords, open_redis_locks, unique_keys
from tests.virtual_clock import VirtualClock, run_advancing

UNREACHABLE_REDIS = "redis://127.0.0.1:1"


@dataclass
class Replicas:
    """Two brokers on one store: `healthy` reaches Redis, `cut` does not."""

    healthy: OpenBroker
    disconnected: OpenBroker
    records: LockRecords
    clock: VirtualClock

    async def renewed_lock(self, queue: Queue) -> LockToken:
        """A lock with a live record in Redis."""
        await send(self.healthy.sending, queue.name, [NewMessage(Envelope(""))])
        (message,) = (await receive(self.healthy.receiving, queue, ReceiveRequest())).result
        token = token_of(message)
        await renew(self.healthy.settling, queue, token)
        assert await self.records.read(token) is not None
        return token

    async def renew_again(self, queue: Queue, token: LockToken) -> RenewedLock:
        """Renew through the replica that reaches Redis, with the queue's current settings."""
        return await run_advancing(
            self.clock, renew(self.healthy.settling, await reload_queue(self.healthy.administration, queue.name), token)
        )


@pytest.fixture
async def replicas(store_fixture: StoreFixture, redis_url: str) -> AsyncIterator[Replicas]:
    clock, keys = VirtualClock(), unique_keys()
    healthy, disconnected = build_broker(store_fixture.store, clock), build_broker(store_fixture.store, clock)
    async with (
        Redis.from_url(redis_url) as redis,
        open_redis_locks(redis_url, keys) as locks,
        disconnected_locks() as none,
    ):
        yield Replicas(
            replace(healthy, lock_store=locks), replace(disconnected, lock_store=none), LockRecords(redis, keys), clock
        )
    await healthy.queue_cache.close()
    await disconnected.queue_cache.close()


@asynccontextmanager
async def disconnected_locks() -> AsyncIterator[RedisLockStore]:
    """The lock store of a replica that cannot reach Redis."""
    connection = RedisConnection(
        connect(UNREACHABLE_REDIS, timeout_seconds=1.0), SystemClock(), lambda _name, _error: None
    )
    locks = RedisLockStore(connection, unique_keys())
    yield locks
    await locks.close()
    await connection.close()


LOCKED = MessageSelection([MessageState.LOCKED], MatchAll())


async def test_a_purged_lock_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed_lock(queue)
    assert await purge(replicas.disconnected.administration, queue, LOCKED) == 1
    assert await replicas.records.read(token) is not None, "the drop was lost"
    with pytest.raises(LockLost) as lost:
        await replicas.renew_again(queue, token)
    assert lost.value.cause is LossCause.ADMINISTRATOR


async def test_a_lock_that_a_change_has_revoked_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed_lock(queue)
    await change_queue(replicas.disconnected.administration, queue, lambda old: replace(old, max_delivery_count=3))
    with pytest.raises(LockLost) as lost:
        await replicas.renew_again(queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED


async def test_a_lock_that_a_change_is_about_to_revoke_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    """The replica that made the change crashed after its commit, so the lock is still in its row."""
    token = await replicas.renewed_lock(queue)
    assert await replicas.disconnected.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    with pytest.raises(MessageBusy):
        await replicas.renew_again(queue, token)
    assert await revoke_locks(replicas.disconnected.settling) == 1
    with pytest.raises(LockLost):
        await replicas.renew_again(queue, token)


async def test_a_lock_of_a_deleted_and_recreated_queue_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed_lock(queue)
    await delete_queue(replicas.disconnected.administration, queue)
    again, made = await replicas.disconnected.store.queues.create(queue.name, QueueSettings())
    assert made
    assert again.id != queue.id
    with pytest.raises(MessageNotFound):
        await replicas.renew_again(queue, token)


async def test_a_lock_is_renewed_through_its_own_queue_only(
    replicas: Replicas, queue: Queue, store_fixture: StoreFixture
) -> None:
    token = await replicas.renewed_lock(queue)
    with pytest.raises(MessageNotFound):
        await replicas.renew_again(await store_fixture.queue(), token)
    await replicas.renew_again(queue, token)


async def test_a_change_that_revokes_no_locks_costs_one_renewal_in_sql(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed_lock(queue)
    await change_queue(replicas.disconnected.administration, queue, lambda old: replace(old, description="new"))
    without_sql = replicas.healthy.counters["renewals_without_sql"]
    await replicas.renew_again(queue, token)
    assert replicas.healthy.counters["renewals_without_sql"] == without_sql
    await replicas.renew_again(queue, token)
    assert replicas.healthy.counters["renewals_without_sql"] == without_sql + 1
