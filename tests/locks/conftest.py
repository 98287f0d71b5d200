"""Lock stores to test, each with nothing in it."""

import secrets
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.broker.ports import Locks
from app.domain.settlement import LockToken
from app.locks.connect import connect
from app.locks.keys import Keys
from app.locks.link import Link
from app.locks.memory_locks import MemoryLocks
from app.locks.redis_locks import RedisLocks
from app.runtime.clock import SystemClock
from tests.locks.records import Records

# A busy machine must not look like a broken Redis where the answers are what is tested.
PATIENCE_SECONDS = 10.0

NewToken = Callable[..., LockToken]


@pytest.fixture
def new_token() -> NewToken:
    """Make the token of a new delivery, by default of message 7."""
    return lambda number=7: LockToken(number, secrets.token_bytes(16))


@pytest.fixture
def keys() -> Keys:
    """A prefix of this test alone."""
    return Keys(f"test-{secrets.token_hex(4)}:")


@pytest.fixture
async def records(redis_url: str, keys: Keys) -> AsyncIterator[Records]:
    """The records of this test, seen from outside."""
    async with Redis.from_url(redis_url) as redis:
        yield Records(redis, keys)


@pytest.fixture
async def redis_locks(redis_url: str, keys: Keys) -> AsyncIterator[RedisLocks]:
    """A lock store in Redis; a failure of Redis fails the test."""
    failures: list[BaseException] = []
    link = Link(
        connect(redis_url, patience_seconds=PATIENCE_SECONDS), SystemClock(), lambda _, error: failures.append(error)
    )
    locks = RedisLocks(link, keys)
    yield locks
    await locks.close()
    await link.close()
    assert failures == []


@pytest.fixture(params=["memory", "redis"])
def locks(request: pytest.FixtureRequest) -> Locks:
    """Every lock store in turn."""
    return MemoryLocks() if request.param == "memory" else request.getfixturevalue("redis_locks")
