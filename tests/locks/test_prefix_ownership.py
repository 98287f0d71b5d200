"""Two brokers under one prefix in Redis refuse each other; the processes of one broker share it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from app.broker.ports.lock_store import LockRecord, NotRenewed, Renewed
from app.domain.instant import SECOND
from app.locks.backend import LockBackend, RedisOptions, acquire_prefix, open_locks
from app.locks.prefix_ownership import OWNERSHIP_SECONDS, RETRY_SECONDS, PrefixInUse, acquire
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.runtime.clock import SystemClock
from app.runtime.wait_queue import WaitQueue
from tests.bounds import bounded
from tests.faults.proxies import FaultyProxy
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, IN_TIME, TIMEOUT_SECONDS, LockRecords
from tests.servers import free_port
from tests.virtual_clock import VirtualClock, run_advancing

DURATION = 30 * SECOND
FAR_FUTURE = 4_000_000_000 * SECOND

MAX_SECONDS = 300
"""Seconds of the virtual clock that a broker may take to see what is in Redis; much longer than between two checks."""

Condition = Callable[[], Awaitable[object]]


class Backends:
    """Opens the lock backends of processes; `reported` contains their reports."""

    def __init__(self, keys: RedisKeys) -> None:
        self.clock = VirtualClock()
        self.keys = keys
        self.reported: list[str] = []
        self.opened = AsyncExitStack()

    def open(self, url: str, broker: str) -> LockBackend:
        options = RedisOptions(url, broker, TIMEOUT_SECONDS, self.keys.prefix)
        backend = open_locks(options, WaitQueue(self.clock), self.clock, self._report)
        self.opened.push_async_callback(backend.close)
        return backend

    def _report(self, _name: str, error: BaseException) -> None:
        self.reported.append(str(error))

    async def open_started(self, url: str, broker: str) -> LockBackend:
        backend = self.open(url, broker)
        await backend.start()
        return backend

    async def check_until(self, is_met: Condition, what: str) -> None:
        """Let the brokers check their prefix until this is so: Redis may answer a check late."""
        for _ in bounded(what, MAX_SECONDS):
            if await is_met():
                break
            await run_advancing(self.clock, self.clock.sleep(RETRY_SECONDS))


def has_state(backend: LockBackend, state: str) -> Condition:
    async def is_met() -> bool:
        return backend.locks.state == state

    return is_met


def has_reported(backends: Backends) -> Condition:
    async def is_met() -> bool:
        return "PEEKLOCK_REDIS_PREFIX" in "".join(backends.reported)

    return is_met


@pytest.fixture
async def backends(keys: RedisKeys) -> AsyncIterator[Backends]:
    """Lock backends that are closed with the test."""
    backends = Backends(keys)
    async with backends.opened:
        yield backends


async def test_a_second_broker_is_refused_with_the_remedy(backends: Backends, redis_url: str) -> None:
    await backends.open_started(redis_url, "one")
    with pytest.raises(PrefixInUse) as refused:
        await backends.open_started(redis_url, "other")
    sentence = str(refused.value)
    assert f"the prefix {backends.keys.prefix!r}" in sentence
    assert "PEEKLOCK_REDIS_PREFIX" in sentence
    assert backends.keys.owner() in sentence
    options = RedisOptions(redis_url, "other", TIMEOUT_SECONDS, backends.keys.prefix)
    with pytest.raises(PrefixInUse):
        await acquire_prefix(options, {}, backends.clock, _fail)


async def test_processes_of_one_broker_share_the_prefix(
    backends: Backends, redis_url: str, new_token: NewToken
) -> None:
    one, other = await backends.open_started(redis_url, "one"), await backends.open_started(redis_url, "one")
    token = new_token()
    await one.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION))
    assert isinstance(await other.locks.renew(token, DURATION, EDITION), Renewed)
    assert (one.locks.state, other.locks.state) == ("ok", "ok")


@pytest.mark.fence("owner")
async def test_only_the_owner_of_a_prefix_acquires_it_again(connection: RedisConnection, keys: RedisKeys) -> None:
    for _ in range(2):
        assert await acquire(connection, keys, "one")
    with pytest.raises(PrefixInUse):
        await acquire(connection, keys, "other")


async def test_brokers_with_prefixes_of_their_own_share_a_redis(redis_url: str, keys: RedisKeys) -> None:
    one, other = Backends(keys), Backends(RedisKeys(f"{keys.prefix}other:"))
    async with one.opened, other.opened:
        await one.open_started(redis_url, "one")
        assert (await other.open_started(redis_url, "other")).locks.state == "ok"


async def test_a_prefix_stays_with_its_broker_for_a_day(
    backends: Backends, redis_url: str, records: LockRecords
) -> None:
    backend = await backends.open_started(redis_url, "one")
    await backend.close()
    assert OWNERSHIP_SECONDS - 60 < await records.redis.ttl(backends.keys.owner()) <= OWNERSHIP_SECONDS
    with pytest.raises(PrefixInUse):
        await backends.open_started(redis_url, "other")
    await records.redis.delete(backends.keys.owner())
    await backends.open_started(redis_url, "other")


async def test_a_broker_takes_its_prefix_again_after_redis_was_emptied(
    backends: Backends, redis_url: str, records: LockRecords
) -> None:
    await backends.open_started(redis_url, "one")
    await records.redis.delete(backends.keys.owner())
    await backends.check_until(lambda: records.redis.get(backends.keys.owner()), "the broker has its prefix again")
    with pytest.raises(PrefixInUse):
        await backends.open_started(redis_url, "other")
    assert backends.reported == []


async def test_a_broker_that_loses_its_prefix_works_without_redis(
    backends: Backends, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    backend, token = await backends.open_started(redis_url, "one"), new_token()
    await backend.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION))
    await records.redis.set(backends.keys.owner(), "other")
    await backends.check_until(has_reported(backends), "the broker has seen the other owner")
    assert (backend.locks.state, backend.locks.is_shared) == ("degraded", False)
    assert isinstance(await backend.locks.renew(token, DURATION, EDITION), NotRenewed)
    (sentence,) = backends.reported
    assert "PEEKLOCK_REDIS_PREFIX" in sentence
    await records.redis.delete(backends.keys.owner())
    await backends.check_until(has_state(backend, "ok"), "the broker has its prefix again")
    assert isinstance(await backend.locks.renew(token, DURATION, EDITION), Renewed)


async def test_nothing_is_written_before_the_broker_has_the_prefix(
    backends: Backends, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    backend, token = backends.open(redis_url, "one"), new_token()
    await backend.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION))
    assert await records.read(token) is None
    assert backend.locks.state == "degraded"


async def test_a_broker_that_started_without_redis_checks_once_redis_answers(
    backends: Backends, redis_url: str, records: LockRecords
) -> None:
    address = urlsplit(redis_url)
    async with FaultyProxy(address.port or 6379).open() as proxy:
        proxy.is_closed = True
        backend = await backends.open_started(
            address._replace(netloc=f"{address.hostname}:{proxy.port}").geturl(), "one"
        )
        assert backend.locks.state == "degraded"
        await records.redis.set(backends.keys.owner(), "other")
        backends.reported.clear()
        proxy.is_closed = False
        await backends.check_until(has_reported(backends), "the broker has seen the other owner")
        assert backend.locks.state == "degraded"
        await records.redis.delete(backends.keys.owner())
        await backends.check_until(has_state(backend, "ok"), "the broker has its prefix")


async def test_an_unavailable_redis_prevents_no_start(keys: RedisKeys) -> None:
    nowhere = RedisOptions(f"redis://127.0.0.1:{free_port()}", "one", 0.2, keys.prefix)
    seen = await acquire_prefix(nowhere, {"timeline:1": 2}, SystemClock(), lambda _name, _error: None)
    assert seen == {"timeline:1": 2}


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
