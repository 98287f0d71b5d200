"""Two replicas, one of them cut off from Redis: a lock that it takes is not renewed through the other one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from app.broker.broker import Broker
from app.broker.filters import Everything
from app.broker.purge import Choice, purge
from app.broker.queues import change_queue, delete_queue, fresh, take_locks
from app.broker.receive import Wish, receive
from app.broker.renew import Promise, renew
from app.broker.send import send
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import LockLost, LossCause, MessageBusy, MessageNotFound
from app.domain.sending import Letter
from app.domain.settlement import LockToken, token_of
from app.locks.connect import connect
from app.locks.link import Link
from app.locks.redis_locks import RedisLocks
from app.runtime.clock import SystemClock
from tests.clock import VirtualClock, through
from tests.contract.subject import Subject
from tests.locks.records import Records, locks_in_redis, own_keys
from tests.rooms import assemble

NOBODY_LISTENS = "redis://127.0.0.1:1"


@dataclass
class Replicas:
    """Two brokers on one store: `healthy` reaches Redis, `cut` does not."""

    healthy: Broker
    cut: Broker
    records: Records
    clock: VirtualClock

    async def renewed(self, queue: Queue) -> LockToken:
        """A lock with a living record in Redis."""
        await send(self.healthy, queue, [Letter(Envelope(""))])
        (message,) = await receive(self.healthy, queue, Wish())
        token = token_of(message)
        await renew(self.healthy, queue, token)
        assert await self.records.read(token) is not None
        return token

    async def renew_again(self, queue: Queue, token: LockToken) -> Promise:
        """Renew through the replica that reaches Redis, which knows the queue as it is now."""
        return await through(self.clock, renew(self.healthy, await fresh(self.healthy, queue.name), token))


@pytest.fixture
async def replicas(subject: Subject, redis_url: str) -> AsyncIterator[Replicas]:
    clock, keys = VirtualClock(), own_keys()
    healthy, cut = assemble(subject.store, clock), assemble(subject.store, clock)
    async with (
        connect(redis_url, patience_seconds=10.0) as redis,
        locks_in_redis(redis_url, keys) as locks,
        cut_locks() as none,
    ):
        yield Replicas(replace(healthy, locks=locks), replace(cut, locks=none), Records(redis, keys), clock)
    await healthy.catalogue.close()
    await cut.catalogue.close()


@asynccontextmanager
async def cut_locks() -> AsyncIterator[RedisLocks]:
    """The lock store of a replica that cannot reach Redis."""
    link = Link(connect(NOBODY_LISTENS, patience_seconds=1.0), SystemClock(), lambda _name, _error: None)
    locks = RedisLocks(link, own_keys())
    yield locks
    await locks.close()
    await link.close()


LOCKED = Choice([MessageState.LOCKED], Everything())


async def test_a_purged_lock_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed(queue)
    assert await purge(replicas.cut, queue, LOCKED) == 1
    assert await replicas.records.read(token) is not None, "the drop was lost"
    with pytest.raises(LockLost) as lost:
        await replicas.renew_again(queue, token)
    assert lost.value.cause is LossCause.ADMINISTRATOR


async def test_a_lock_that_a_change_has_taken_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed(queue)
    await change_queue(replicas.cut, queue, lambda old: replace(old, max_delivery_count=3))
    with pytest.raises(LockLost) as lost:
        await replicas.renew_again(queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED


async def test_a_lock_that_a_change_is_about_to_take_is_not_renewed(replicas: Replicas, queue: Queue) -> None:
    """The replica that made the change died after its commit, so the lock is still in its row."""
    token = await replicas.renewed(queue)
    assert await replicas.cut.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    with pytest.raises(MessageBusy):
        await replicas.renew_again(queue, token)
    assert await take_locks(replicas.cut) == 1
    with pytest.raises(LockLost):
        await replicas.renew_again(queue, token)


async def test_a_lock_of_a_queue_that_was_deleted_and_made_again_is_not_renewed(
    replicas: Replicas, queue: Queue
) -> None:
    token = await replicas.renewed(queue)
    await delete_queue(replicas.cut, queue)
    again, made = await replicas.cut.store.queues.create(queue.name, QueueSettings())
    assert made
    assert again.id != queue.id
    with pytest.raises(MessageNotFound):
        await replicas.renew_again(queue, token)


async def test_a_lock_is_renewed_through_its_own_queue_only(replicas: Replicas, queue: Queue, subject: Subject) -> None:
    token = await replicas.renewed(queue)
    with pytest.raises(MessageNotFound):
        await replicas.renew_again(await subject.queue(), token)
    await replicas.renew_again(queue, token)


async def test_a_change_that_takes_no_locks_costs_one_renewal_in_sql(replicas: Replicas, queue: Queue) -> None:
    token = await replicas.renewed(queue)
    await change_queue(replicas.cut, queue, lambda old: replace(old, description="new"))
    without_sql = replicas.healthy.tally["renewals_without_sql"]
    await replicas.renew_again(queue, token)
    assert replicas.healthy.tally["renewals_without_sql"] == without_sql
    await replicas.renew_again(queue, token)
    assert replicas.healthy.tally["renewals_without_sql"] == without_sql + 1
