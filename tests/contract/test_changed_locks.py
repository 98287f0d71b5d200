"""A lock whose holder has set its end is free after it, even if a process is paused between SQL and Redis."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import LockRecord, LockStore
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.change_lock import change_lock
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import RenewedLock, renew
from app.broker.settling.settle import settle_one
from app.domain.instant import MINUTE, SECOND, Duration, Instant
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue
from app.domain.refusals import LockLost, LockStoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from app.locks.redis_lock_store import RedisLockStore
from app.maintenance.expiry import expire_locks
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture
from tests.locks.lock_records import LockRecords, open_redis_locks, unique_keys

END = 5 * SECOND


class PausedLockStore:
    """A lock store of a process that is paused, or dies, before it writes a record."""

    def __init__(self, locks: RedisLockStore) -> None:
        self._locks = locks
        self.unwritten: list[tuple[LockToken, LockRecord]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def write_record(self, token: LockToken, record: LockRecord) -> Instant | None:
        self.unwritten.append((token, record))
        return None


@dataclass
class TwoProcesses:
    """Two processes on one store and one Redis. The second one pauses before each record that it writes."""

    store_fixture: StoreFixture
    queue: Queue
    broker: OpenBroker
    paused: OpenBroker
    records: LockRecords
    paused_locks: PausedLockStore
    waited: Duration = field(default=0)

    async def locked(self) -> LockToken:
        await send(self.broker.sending, self.queue.name, [NewMessage(Envelope(""))])
        return await self.received()

    async def received(self) -> LockToken:
        (message,) = (await receive(self.broker.receiving, self.queue, ReceiveRequest())).result
        return token_of(message)

    async def renew(self, token: LockToken, duration: Duration = MINUTE) -> RenewedLock:
        return await renew(self.broker.settling, self.queue, token, duration)

    async def change(self, token: LockToken, duration: Duration = END) -> RenewedLock:
        return await change_lock(self.broker.settling, self.queue, token, duration)

    async def pass_time(self, token: LockToken, by: Duration) -> None:
        """Let time pass for SQL, for Redis, and for what the paused process has not written yet."""
        await self.store_fixture.advance_time(by / SECOND)
        if await self.records.read(token) is not None:
            await self.records.pass_time(token, by=by)
        self.waited += by

    async def resume(self) -> None:
        """Let the paused process write its records, which name times from before the pause."""
        for token, record in self.paused_locks.unwritten:
            late = replace(record, bound=record.bound - self.waited, late_after=record.late_after - self.waited)
            await self.broker.lock_store.write_record(token, late)

    async def is_available(self, token: LockToken) -> bool:
        """Return whether a sweep makes the message available again."""
        await expire_locks(self.broker.settling)
        message = await self.store_fixture.store.read(self.queue.id, token.sequence_number)
        assert message is not None
        return message.state is MessageState.AVAILABLE


@pytest.fixture
async def processes(store_fixture: StoreFixture, queue: Queue, redis_url: str) -> AsyncIterator[TwoProcesses]:
    keys = unique_keys()
    broker = build_broker(store_fixture.store, store_fixture.clock)
    async with Redis.from_url(redis_url) as redis, open_redis_locks(redis_url, keys) as locks:
        sharing = replace(broker, lock_store=locks)
        paused_locks = PausedLockStore(locks)
        paused = replace(broker, lock_store=cast("LockStore", paused_locks))
        yield TwoProcesses(store_fixture, queue, sharing, paused, LockRecords(redis, keys), paused_locks)
    await broker.queue_cache.close()


@pytest.mark.parametrize("renewals", [0, 1, 2])
async def test_a_changed_lock_is_free_after_its_end_and_not_before(processes: TwoProcesses, renewals: int) -> None:
    token = await processes.locked()
    for _ in range(renewals):
        await processes.renew(token)
    await processes.change(token)
    await processes.pass_time(token, END - SECOND)
    assert not await processes.is_available(token)
    await processes.pass_time(token, 2 * SECOND)
    assert await processes.is_available(token)
    with pytest.raises(LockLost):
        await settle_one(processes.broker.settling, processes.queue, complete(processes.queue, token))


async def test_a_renewal_prolongs_a_changed_lock_in_redis_again(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await processes.renew(token)
    await processes.change(token)
    await processes.renew(token, 2 * END)
    await processes.pass_time(token, END + SECOND)
    assert not await processes.is_available(token)
    await processes.pass_time(token, END)
    assert await processes.is_available(token)


async def test_a_record_from_before_a_change_does_not_replace_its_record(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await renew(processes.paused.settling, processes.queue, token, MINUTE)
    await processes.change(token)
    await processes.resume()
    await processes.pass_time(token, END + SECOND)
    assert await processes.is_available(token)


async def test_a_record_from_before_a_change_extends_nothing_after_it_and_a_flushall(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await renew(processes.paused.settling, processes.queue, token, MINUTE)
    await processes.change(token)
    await processes.pass_time(token, END + SECOND)
    assert await processes.is_available(token)
    await processes.records.evict(token)
    await processes.resume()
    assert (await processes.received()).sequence_number == token.sequence_number
    with pytest.raises(LockLost):
        await processes.renew(token, SECOND)


async def test_a_lost_record_of_a_change_only_delays_the_redelivery(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await processes.renew(token)
    await processes.change(token)
    await processes.records.evict(token)
    await processes.pass_time(token, END + SECOND)
    assert not await processes.is_available(token)
    await processes.pass_time(token, 10 * MINUTE)
    assert await processes.is_available(token)


async def test_a_change_that_dies_before_its_record_leaves_the_lock_to_its_holder(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await processes.renew(token)
    with pytest.raises(LockStoreUnavailable):
        await change_lock(processes.paused.settling, processes.queue, token, END)
    await processes.pass_time(token, END + SECOND)
    assert not await processes.is_available(token)
    await processes.change(token)
    await processes.resume()
    await processes.pass_time(token, END + SECOND)
    assert await processes.is_available(token)


async def test_a_change_that_is_paused_before_its_record_ends_no_lock_at_once(processes: TwoProcesses) -> None:
    token = await processes.locked()
    await processes.renew(token)
    with pytest.raises(LockStoreUnavailable):
        await change_lock(processes.paused.settling, processes.queue, token, END)
    await processes.pass_time(token, 2 * END)
    await processes.renew(token)
    await processes.resume()
    await processes.pass_time(token, END - SECOND)
    assert not await processes.is_available(token)
