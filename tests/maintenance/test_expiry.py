"""The sweeper frees only locks that have ended: by SQL's clock, or by an expired record of the lock store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import LockRecord
from app.broker.ports.store import Store
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import renew
from app.broker.settling.settle import settle_one
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import LockLost, StoreUnavailable
from app.domain.retry import FixedDelay
from app.domain.settlement import LockToken
from app.locks.memory_lock_store import MemoryLockStore
from app.maintenance.expiry import BATCH_SIZE, expire_locks
from tests.brokers import need_newer_server
from tests.locks.lock_records import EDITION, IN_TIME, LockRecords, open_redis_locks, unique_keys
from tests.maintenance.harness import LOCK_DURATION, BrokerHarness, token_of

AVAILABLE, LOCKED = MessageState.AVAILABLE, MessageState.LOCKED


# ---- by time ---------------------------------------------------------------------------------------------------------


async def test_an_expired_lock_frees_its_message(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    token = await harness.send_and_lock(queue)
    await harness.clock.advance(29.9)
    await expire_locks(harness.broker.settling)
    assert await harness.state(queue, token.sequence_number) is LOCKED
    await harness.clock.advance(0.1)
    await expire_locks(harness.broker.settling)
    message = await harness.read(queue, token.sequence_number)
    assert (message.state, message.failure_count, message.last_failure) == (AVAILABLE, 1, "lock_expired")
    assert harness.counters["locks_expired"] == 1


async def test_a_freed_message_wakes_one_waiting_receiver(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send_and_lock(queue)
    await harness.clock.advance(30)
    with harness.broker.wait_queue.waiter(queue.id) as first, harness.broker.wait_queue.waiter(queue.id) as second:
        await expire_locks(harness.broker.settling)
        assert [await each.woken(0) for each in (first, second)] == [True, False]


async def test_an_expired_lock_at_the_limit_dead_letters_the_message(harness: BrokerHarness) -> None:
    queue = await harness.queue(max_delivery_count=1)
    token = await harness.send_and_lock(queue)
    await harness.clock.advance(30)
    await expire_locks(harness.broker.settling)
    message = await harness.read(queue, token.sequence_number)
    assert message.state is MessageState.DEAD_LETTERED
    assert message.dead_letter_reason == "max_delivery_count_exceeded"


async def test_a_retry_delay_schedules_the_message_and_wakes_the_schedule(harness: BrokerHarness) -> None:
    queue = await harness.queue(retry=FixedDelay(5 * SECOND))
    token = await harness.send_and_lock(queue)
    await harness.clock.advance(30)
    await expire_locks(harness.broker.settling)
    assert await harness.state(queue, token.sequence_number) is MessageState.SCHEDULED
    assert harness.schedule_changes == 1


async def test_concurrent_sweepers_free_each_message_once(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, count=20)
    numbers = [message.sequence_number for message in await harness.receive(queue, max_messages=20)]
    await harness.clock.advance(30)
    await asyncio.gather(expire_locks(harness.broker.settling), expire_locks(harness.broker.settling))
    messages = [await harness.read(queue, number) for number in numbers]
    assert {(message.state, message.failure_count) for message in messages} == {(AVAILABLE, 1)}
    assert harness.counters["locks_expired"] == 20


async def test_the_sweeper_does_not_rest_after_a_full_batch(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, count=BATCH_SIZE + 1)
    await harness.receive(queue, max_messages=BATCH_SIZE + 1)
    await harness.clock.advance(30)
    assert await expire_locks(harness.broker.settling) == 0.0
    assert await expire_locks(harness.broker.settling) is None
    assert harness.counters["locks_expired"] == BATCH_SIZE + 1


# ---- all parts -------------------------------------------------------------------------------------------------------


async def test_the_sweeper_completes_a_revocation(harness: BrokerHarness) -> None:
    """The process that changed the settings has died before it revoked the locks."""
    queue = await harness.queue()
    token = await harness.send_and_lock(queue)
    assert await harness.broker.store.queues.change(queue, replace(queue.settings, lock_duration=SECOND))
    await expire_locks(harness.broker.settling)
    message = await harness.read(queue, token.sequence_number)
    assert (message.state, message.failure_count) == (AVAILABLE, 0)


async def test_a_failing_part_is_reported_when_the_others_are_done(harness: BrokerHarness) -> None:
    await harness.send_and_lock(await harness.queue())
    await harness.clock.advance(30)
    harness.broker = replace(harness.broker, lock_store=FailingLockStore())
    with pytest.raises(StoreUnavailable):
        await expire_locks(harness.broker.settling)
    assert harness.counters["locks_expired"] == 1


class FailingLockStore(MemoryLockStore):
    """A lock store that cannot list its expired records."""

    async def expired_records(self, limit: int, skip: int = 0) -> list[tuple[LockToken, int]]:
        raise StoreUnavailable


# ---- by expired records ----------------------------------------------------------------------------------------------


class RedisHarness(BrokerHarness):
    """A harness with Redis, where time passes in both stores."""

    def __init__(self, harness: BrokerHarness, records: LockRecords) -> None:
        super().__init__(harness.broker, harness.clock)
        self.records = records

    async def lock_and_renew(self, queue: Queue) -> LockToken:
        """Receive and renew a message; return its token."""
        token = await self.send_and_lock(queue)
        await renew(self.broker.settling, queue, token)
        return token

    async def pass_time(self, *tokens: LockToken, seconds: float) -> None:
        """Let this time pass in SQL, and for the records of these tokens."""
        await self.clock.advance(seconds)
        await self.records.pass_time(*tokens, by=round(seconds * SECOND))


@pytest.fixture
async def redis_harness(harness: BrokerHarness, redis_url: str) -> AsyncIterator[RedisHarness]:
    """A harness whose locks are in Redis too."""
    keys = unique_keys()
    async with open_redis_locks(redis_url, keys) as locks, Redis.from_url(redis_url) as redis:
        harness.broker = replace(harness.broker, lock_store=locks)
        yield RedisHarness(harness, LockRecords(redis, keys))


async def test_an_expired_renewed_lock_is_freed_long_before_its_bound(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    await redis_harness.pass_time(token, seconds=30)
    await expire_locks(redis_harness.broker.settling)
    message = await redis_harness.read(queue, token.sequence_number)
    assert (message.state, message.failure_count) == (AVAILABLE, 1)
    assert await redis_harness.records.read(token) is None, "the record is deleted once its row is freed"
    with pytest.raises(LockLost):
        await settle_one(redis_harness.broker.settling, queue, complete(queue, token))


async def test_a_lock_lasts_as_long_as_it_is_renewed(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    for _ in range(8):
        await redis_harness.pass_time(token, seconds=25)
        await renew(redis_harness.broker.settling, queue, token)
        await expire_locks(redis_harness.broker.settling)
        assert await redis_harness.state(queue, token.sequence_number) is LOCKED
    assert redis_harness.counters["renewals_without_sql"] >= 5
    await settle_one(redis_harness.broker.settling, queue, complete(queue, token))


async def test_lost_records_only_delay_a_redelivery(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    await redis_harness.records.evict(token)
    await redis_harness.clock.advance(119)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is LOCKED, "a missing record proves nothing"
    await redis_harness.clock.advance(1)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is AVAILABLE


async def test_an_expired_record_of_an_earlier_renewal_does_not_end_a_later_one(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    record = await redis_harness.records.read(token)
    await redis_harness.records.evict(token)
    await renew(redis_harness.broker.settling, queue, token)  # generation 2 in SQL
    await redis_harness.records.redis.set(redis_harness.records.keys.record(token), record.value)
    await redis_harness.records.pass_time(token, by=LOCK_DURATION)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is LOCKED
    assert await redis_harness.records.read(token) is None, "it never matches a generation again"
    await settle_one(redis_harness.broker.settling, queue, complete(queue, token))


async def test_a_record_left_by_a_settled_delivery_is_deleted(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    record = await redis_harness.records.read(token)
    await settle_one(redis_harness.broker.settling, queue, complete(queue, token))
    await redis_harness.broker.lock_store.write_record(
        token, LockRecord(record.generation, LOCK_DURATION, record.bound, IN_TIME, EDITION)
    )  # written late
    await redis_harness.records.pass_time(token, by=LOCK_DURATION)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.records.read(token) is None
    assert redis_harness.counters["locks_expired"] == 0


async def test_an_expired_record_stays_until_its_row_is_freed(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    await redis_harness.pass_time(token, seconds=30)
    unavailable_broker = replace(redis_harness.broker, store=CannotRelease(redis_harness.broker.store))
    with pytest.raises(StoreUnavailable):
        await expire_locks(unavailable_broker.settling)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is AVAILABLE


async def test_an_expired_record_stays_after_a_concurrent_change_of_its_row(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    token = await redis_harness.lock_and_renew(queue)
    await redis_harness.pass_time(token, seconds=30)
    racing_broker = replace(redis_harness.broker, store=ReleasesNothing(redis_harness.broker.store))
    await expire_locks(racing_broker.settling)
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is AVAILABLE
    assert await redis_harness.records.read(token) is None


async def test_many_expired_records_are_freed_without_rest(redis_harness: RedisHarness) -> None:
    queue = await redis_harness.queue()
    await redis_harness.send(queue, count=BATCH_SIZE + 20)
    tokens = [token_of(message) for message in await redis_harness.receive(queue, max_messages=BATCH_SIZE + 20)]
    await asyncio.gather(*(renew(redis_harness.broker.settling, queue, token) for token in tokens))
    await redis_harness.pass_time(*tokens, seconds=30)
    assert await expire_locks(redis_harness.broker.settling) == 0.0
    assert await expire_locks(redis_harness.broker.settling) is None
    assert redis_harness.counters["locks_expired"] == BATCH_SIZE + 20


async def test_records_of_a_queue_that_needs_a_newer_server_stay_and_delay_no_other(
    redis_harness: RedisHarness,
) -> None:
    newer, queue = await redis_harness.queue("newer"), await redis_harness.queue()
    await redis_harness.send(newer, count=BATCH_SIZE)
    tokens = [token_of(message) for message in await redis_harness.receive(newer, max_messages=BATCH_SIZE)]
    await asyncio.gather(*(renew(redis_harness.broker.settling, newer, token) for token in tokens))
    token = await redis_harness.lock_and_renew(queue)
    await redis_harness.pass_time(*tokens, token, seconds=30)
    await need_newer_server(redis_harness.broker, "newer")
    await expire_locks(redis_harness.broker.settling)
    assert await redis_harness.state(queue, token.sequence_number) is AVAILABLE
    assert await redis_harness.state(newer, tokens[0].sequence_number) is LOCKED
    assert redis_harness.counters["locks_expired"] == 1
    assert len(await redis_harness.broker.lock_store.expired_records(2 * BATCH_SIZE)) == BATCH_SIZE


class CannotRelease:
    """A store that becomes unavailable just before the row is freed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def release(self, moves: object) -> list[bool]:
        raise StoreUnavailable


class ReleasesNothing(CannotRelease):
    """A store in which another request always changes the row first."""

    async def release(self, moves: Sequence[object]) -> list[bool]:
        return [False for _ in moves]
