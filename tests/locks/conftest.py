"""Empty lock stores to test."""

import secrets
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.broker.ports import LockStore
from app.domain.settlement import LockToken
from app.locks.memory_lock_store import MemoryLockStore
from app.locks.redis_keys import RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from tests.locks.lock_records import LockRecords, open_redis_locks, unique_keys

NewToken = Callable[..., LockToken]


@pytest.fixture
def new_token() -> NewToken:
    """Make the token of a new delivery, by default of message 7."""
    return lambda number=7: LockToken(number, secrets.token_bytes(16))


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
async def redis_locks(redis_url: str, keys: RedisKeys) -> AsyncIterator[RedisLockStore]:
    """A lock store in Redis that must not fail."""
    async with open_redis_locks(redis_url, keys) as locks:
        yield locks


@pytest.fixture(params=["memory", "redis"])
def locks(request: pytest.FixtureRequest) -> LockStore:
    """Every lock store in turn."""
    return MemoryLockStore() if request.param == "memory" else request.getfixturevalue("redis_locks")
