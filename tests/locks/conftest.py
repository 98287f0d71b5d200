"""Lock stores to test, each with nothing in it."""

import secrets
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.broker.ports import Locks
from app.domain.settlement import LockToken
from app.locks.keys import Keys
from app.locks.memory_locks import MemoryLocks
from app.locks.redis_locks import RedisLocks
from tests.locks.records import Records, locks_in_redis, own_keys

NewToken = Callable[..., LockToken]


@pytest.fixture
def new_token() -> NewToken:
    """Make the token of a new delivery, by default of message 7."""
    return lambda number=7: LockToken(number, secrets.token_bytes(16))


@pytest.fixture
def keys() -> Keys:
    """A prefix of this test alone."""
    return own_keys()


@pytest.fixture
async def records(redis_url: str, keys: Keys) -> AsyncIterator[Records]:
    """The records of this test, seen from outside."""
    async with Redis.from_url(redis_url) as redis:
        yield Records(redis, keys)


@pytest.fixture
async def redis_locks(redis_url: str, keys: Keys) -> AsyncIterator[RedisLocks]:
    """A lock store in Redis that must not fail."""
    async with locks_in_redis(redis_url, keys) as locks:
        yield locks


@pytest.fixture(params=["memory", "redis"])
def locks(request: pytest.FixtureRequest) -> Locks:
    """Every lock store in turn."""
    return MemoryLocks() if request.param == "memory" else request.getfixturevalue("redis_locks")
