"""Empty lock stores to test."""

from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import LockStore
from app.domain.settlement import LockToken
from app.locks.memory_lock_store import MemoryLockStore
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from tests.locks.lock_records import LockRecords, new_token, open_connection, open_redis_locks, unique_keys

NewToken = Callable[..., LockToken]


@pytest.fixture(name="new_token")
def provide_new_token() -> NewToken:
    """Make the token of a new delivery, by default of message 7."""
    return new_token


@pytest.fixture
def keys() -> RedisKeys:
    """A prefix of this test alone."""
    return unique_keys()


@pytest.fixture
async def records(redis_url: str, keys: RedisKeys) -> AsyncIterator[LockRecords]:
    """The records of this test, read without the lock store."""
    async with Redis.from_url(redis_url) as redis:
        yield LockRecords(redis, keys)


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[RedisConnection]:
    """A connection to a Redis that must not fail."""
    async with open_connection(redis_url) as connection:
        yield connection


@pytest.fixture
async def redis_locks(redis_url: str, keys: RedisKeys) -> AsyncIterator[RedisLockStore]:
    """A lock store in Redis that must not fail."""
    async with open_redis_locks(redis_url, keys) as locks:
        yield locks


@pytest.fixture(params=["memory", "redis"])
def locks(request: pytest.FixtureRequest) -> LockStore:
    """Every lock store in turn."""
    return MemoryLockStore() if request.param == "memory" else request.getfixturevalue("redis_locks")
