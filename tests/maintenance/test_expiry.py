"""The sweeper frees what has ended, by the clock of SQL or on evidence, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.broker.complete import complete
from app.broker.ports import LockRecord, Store
from app.broker.renew import renew
from app.broker.settling import settle_one
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import LockLost, StoreUnavailable
from app.domain.retry import FixedDelay
from app.domain.settlement import LockToken
from app.maintenance.expiry import BATCH_SIZE, expire_locks
from tests.locks.records import EDITION, PROMISED, Records, locks_in_redis, own_keys
from tests.maintenance.house import D, House, token_of

AVAILABLE, LOCKED = MessageState.AVAILABLE, MessageState.LOCKED


# ---- by time ---------------------------------------------------------------------------------------------------------


async def test_a_lock_that_has_run_out_frees_its_message(house: House) -> None:
    queue = await house.queue()
    token = await house.locked(queue)
    await house.clock.advance(29.9)
    await expire_locks(house.broker)
    assert await house.state(queue, token.sequence_number) is LOCKED
    await house.clock.advance(0.1)
    await expire_locks(house.broker)
    message = await house.read(queue, token.sequence_number)
    assert (message.state, message.failure_count, message.last_failure) == (AVAILABLE, 1, "lock_expired")
    assert house.tally["locks_expired"] == 1


async def test_whoever_waits_gets_the_freed_message_at_once(house: House) -> None:
    queue = await house.queue()
    await house.locked(queue)
    await house.clock.advance(30)
    with house.broker.waiting.waiter(queue.id) as first, house.broker.waiting.waiter(queue.id) as second:
        await expire_locks(house.broker)
        assert [await each.rung(0) for each in (first, second)] == [True, False]


async def test_at_the_limit_the_message_goes_to_the_dead_letter_queue(house: House) -> None:
    queue = await house.queue(max_delivery_count=1)
    token = await house.locked(queue)
    await house.clock.advance(30)
    await expire_locks(house.broker)
    message = await house.read(queue, token.sequence_number)
    assert message.state is MessageState.DEAD_LETTERED
    assert message.dead_letter_reason == "max_delivery_count_exceeded"


async def test_a_retry_delay_makes_the_message_wait_and_the_schedule_look(house: House) -> None:
    queue = await house.queue(retry=FixedDelay(5 * SECOND))
    token = await house.locked(queue)
    await house.clock.advance(30)
    await expire_locks(house.broker)
    assert await house.state(queue, token.sequence_number) is MessageState.SCHEDULED
    assert house.scheduled == 1


async def test_two_sweepers_at_once_free_each_message_once(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, count=20)
    numbers = [message.sequence_number for message in await house.receive(queue, most=20)]
    await house.clock.advance(30)
    await asyncio.gather(expire_locks(house.broker), expire_locks(house.broker))
    messages = [await house.read(queue, number) for number in numbers]
    assert {(message.state, message.failure_count) for message in messages} == {(AVAILABLE, 1)}
    assert house.tally["locks_expired"] == 20


async def test_it_does_not_rest_while_more_has_ended_than_one_pass_frees(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, count=BATCH_SIZE + 1)
    await house.receive(queue, most=BATCH_SIZE + 1)
    await house.clock.advance(30)
    assert await expire_locks(house.broker) == 0.0
    assert await expire_locks(house.broker) is None
    assert house.tally["locks_expired"] == BATCH_SIZE + 1


# ---- on evidence -----------------------------------------------------------------------------------------------------


class SharedHouse(House):
    """A house with Redis, and time that passes in both."""

    def __init__(self, house: House, records: Records) -> None:
        super().__init__(house.broker, house.clock)
        self.records = records

    async def renewed(self, queue: Queue) -> LockToken:
        """The token of a message that was received and renewed."""
        token = await self.locked(queue)
        await renew(self.broker, queue, token)
        return token

    async def pass_time(self, *tokens: LockToken, seconds: float) -> None:
        """Let so much time pass in SQL, and for the records of these tokens."""
        await self.clock.advance(seconds)
        await self.records.pass_time(*tokens, by=round(seconds * SECOND))


@pytest.fixture
async def shared(house: House, redis_url: str) -> AsyncIterator[SharedHouse]:
    """A house whose locks are in Redis too."""
    keys = own_keys()
    async with locks_in_redis(redis_url, keys) as locks, Redis.from_url(redis_url) as redis:
        house.broker = replace(house.broker, locks=locks)
        yield SharedHouse(house, Records(redis, keys))


async def test_a_renewed_lock_that_ran_out_is_freed_long_before_its_bound(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    await shared.pass_time(token, seconds=30)
    await expire_locks(shared.broker)
    message = await shared.read(queue, token.sequence_number)
    assert (message.state, message.failure_count) == (AVAILABLE, 1)
    assert await shared.records.read(token) is None, "the evidence has served"
    with pytest.raises(LockLost):
        await settle_one(shared.broker, queue, complete(queue, token))


async def test_a_renewed_lock_lives_as_long_as_its_renewals(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    for _ in range(8):
        await shared.pass_time(token, seconds=25)
        await renew(shared.broker, queue, token)
        await expire_locks(shared.broker)
        assert await shared.state(queue, token.sequence_number) is LOCKED
    assert shared.tally["renewals_without_sql"] >= 5
    await settle_one(shared.broker, queue, complete(queue, token))


async def test_lost_records_only_delay_a_redelivery(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    await shared.records.evict(token)
    await shared.clock.advance(119)
    await expire_locks(shared.broker)
    assert await shared.state(queue, token.sequence_number) is LOCKED, "a missing record proves nothing"
    await shared.clock.advance(1)
    await expire_locks(shared.broker)
    assert await shared.state(queue, token.sequence_number) is AVAILABLE


async def test_evidence_of_an_earlier_renewal_does_not_end_a_later_one(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    record = await shared.records.read(token)
    await shared.records.evict(token)
    await renew(shared.broker, queue, token)  # generation 2 in SQL
    await shared.records.redis.set(shared.records.keys.record(token), record.value)
    await shared.records.pass_time(token, by=D)
    await expire_locks(shared.broker)
    assert await shared.state(queue, token.sequence_number) is LOCKED
    assert await shared.records.read(token) is None, "it can never be evidence again"
    await settle_one(shared.broker, queue, complete(queue, token))


async def test_a_record_left_behind_by_a_settled_delivery_is_dropped(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    record = await shared.records.read(token)
    await settle_one(shared.broker, queue, complete(queue, token))
    await shared.broker.locks.record(
        token, LockRecord(record.generation, D, record.bound, PROMISED, EDITION)
    )  # written late
    await shared.records.pass_time(token, by=D)
    await expire_locks(shared.broker)
    assert await shared.records.read(token) is None
    assert shared.tally["locks_expired"] == 0


async def test_evidence_stays_until_it_has_been_acted_on(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    await shared.pass_time(token, seconds=30)
    away = replace(shared.broker, store=CannotRelease(shared.broker.store))
    with pytest.raises(StoreUnavailable):
        await expire_locks(away)
    await expire_locks(shared.broker)
    assert await shared.state(queue, token.sequence_number) is AVAILABLE


async def test_evidence_stays_where_the_row_was_changed_at_the_same_moment(shared: SharedHouse) -> None:
    queue = await shared.queue()
    token = await shared.renewed(queue)
    await shared.pass_time(token, seconds=30)
    beaten = replace(shared.broker, store=ReleasesNothing(shared.broker.store))
    await expire_locks(beaten)
    await expire_locks(shared.broker)
    assert await shared.state(queue, token.sequence_number) is AVAILABLE
    assert await shared.records.read(token) is None


async def test_a_burst_of_dead_receivers_is_freed_without_rest(shared: SharedHouse) -> None:
    queue = await shared.queue()
    await shared.send(queue, count=BATCH_SIZE + 20)
    tokens = [token_of(message) for message in await shared.receive(queue, most=BATCH_SIZE + 20)]
    await asyncio.gather(*(renew(shared.broker, queue, token) for token in tokens))
    await shared.pass_time(*tokens, seconds=30)
    assert await expire_locks(shared.broker) == 0.0
    assert await expire_locks(shared.broker) is None
    assert shared.tally["locks_expired"] == BATCH_SIZE + 20


class CannotRelease:
    """A store that goes away just before the row is freed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def release(self, moves: object) -> list[bool]:
        raise StoreUnavailable


class ReleasesNothing(CannotRelease):
    """A store in which somebody else is always faster with the row."""

    async def release(self, moves: Sequence[object]) -> list[bool]:
        return [False for _ in moves]
