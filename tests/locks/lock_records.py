"""Reads the records of a lock store in Redis, and lets time pass there by changing records instead of waiting."""

import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from app.broker.ports.lock_store import LockRecord, QueueVersion
from app.domain.instant import MINUTE, SECOND, Duration, Instant
from app.domain.settlement import LockToken
from app.locks.connect import connect
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import BUCKETS, RedisKeys, bucket_of
from app.locks.redis_lock_store import RedisLockStore
from app.runtime.clock import SystemClock

RECORD_PATTERN = re.compile(rb"(\d+) (\d+) (\d+) (\d+) (\d+)")

IN_TIME = 4_000_000_000 * SECOND
"""A time after which records are late, beyond every test."""

EDITION = QueueVersion(7, 3)
"""A version of a queue for tests that need only one."""

DURATION = 30 * SECOND
"""The duration of a lock for tests that need only one."""

# A busy machine must not look like a broken Redis where the answers are what is tested.
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class StoredRecord:
    """A record as it is stored."""

    generation: int
    deadline: Instant
    bound: Instant
    queue: int
    version: int

    @property
    def value(self) -> str:
        """The record as Redis holds it."""
        return f"{self.generation} {self.deadline} {self.bound} {self.queue} {self.version}"


class LockRecords:
    """The records under one prefix, read without the lock store."""

    def __init__(self, redis: Redis, keys: RedisKeys) -> None:
        self.redis = redis
        self.keys = keys

    async def now(self) -> Instant:
        """The clock of Redis."""
        seconds, micros = await self.redis.time()
        return seconds * 1_000_000 + micros

    async def read(self, token: LockToken) -> StoredRecord | None:
        """What is stored for this token."""
        value = await self.redis.get(self.keys.record(token))
        return None if value is None else StoredRecord(*map(int, RECORD_PATTERN.fullmatch(value).groups()))

    async def pass_time(self, *tokens: LockToken, by: Duration) -> None:
        """Move deadlines and bounds of these records into the past, as if this time had passed."""
        for token in tokens:
            record = await self.read(token)
            older = replace(record, deadline=record.deadline - by, bound=max(0, record.bound - by))
            await self.redis.set(self.keys.record(token), older.value, keepttl=True)
            index = self.keys.index(bucket_of(token))
            await self.redis.zadd(index, {self.keys.record(token): record.deadline - by})

    async def ttl(self, token: LockToken) -> Duration:
        """The time until Redis expires the record."""
        return await self.redis.pttl(self.keys.record(token)) * 1_000

    async def evict(self, token: LockToken) -> None:
        """Delete the record, as Redis does when its memory is full; the index stays."""
        await self.redis.delete(self.keys.record(token))

    async def indexed(self) -> int:
        """The number of records in the indexes."""
        return sum([await self.redis.zcard(self.keys.index(bucket)) for bucket in range(BUCKETS)])


@asynccontextmanager
async def open_connection(
    url: str, make_connection: Callable[..., RedisConnection] = RedisConnection
) -> AsyncIterator[RedisConnection]:
    """A connection to Redis; a failure of Redis fails the test."""
    failures: list[BaseException] = []
    connection = make_connection(
        connect(url, timeout_seconds=TIMEOUT_SECONDS), SystemClock(), lambda _, error: failures.append(error)
    )
    yield connection
    await connection.close()
    assert failures == []


@asynccontextmanager
async def open_redis_locks(url: str, keys: RedisKeys) -> AsyncIterator[RedisLockStore]:
    """A lock store in Redis; a failure of Redis fails the test."""
    async with open_connection(url) as connection:
        locks = RedisLockStore(connection, keys)
        yield locks
        await locks.close()


async def write_first_record(locks: RedisLockStore, records: LockRecords, token: LockToken) -> None:
    """Write a record of generation 1 for this token. Its bound lies two minutes ahead."""
    bound = await records.now() + 2 * MINUTE
    await locks.write_record(token, LockRecord(1, DURATION, bound, IN_TIME, EDITION))


def new_token(number: int = 7) -> LockToken:
    """Return the token of a new delivery, by default of message 7."""
    return LockToken(number, secrets.token_bytes(16))


def unique_keys() -> RedisKeys:
    """Return a prefix that no other test uses."""
    return RedisKeys(f"test-{secrets.token_hex(4)}:")
