"""Two brokers under one prefix in Redis refuse each other; the processes of one broker share it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from app.broker.ports import LockRecord, NotRenewed, Renewed
from app.domain.instant import SECOND
from app.locks.backend import LockBackend, RedisOptions, acquire_prefix, open_locks
from app.locks.prefix_ownership import CHECK_SECONDS, OWNERSHIP_SECONDS, PrefixInUse, acquire
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.runtime.clock import SystemClock
from app.runtime.wait_queue import WaitQueue
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, PROMISED_UNTIL, TIMEOUT_SECONDS, LockRecords
from tests.servers import RedisServer, ServerProcess, free_port
from tests.virtual_clock import VirtualClock, run_advancing

DURATION = 30 * SECOND
FAR_FUTURE = 4_000_000_000 * SECOND


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
        await acquire_prefix(options, backends.clock, _fail)


async def test_processes_of_one_broker_share_the_prefix(
    backends: Backends, redis_url: str, new_token: NewToken
) -> None:
    one, other = await backends.open_started(redis_url, "one"), await backends.open_started(redis_url, "one")
    token = new_token()
    await one.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, PROMISED_UNTIL, EDITION))
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
    await run_advancing(backends.clock, backends.clock.sleep(CHECK_SECONDS + 1))
    with pytest.raises(PrefixInUse):
        await backends.open_started(redis_url, "other")
    assert backends.reported == []


async def test_a_broker_that_loses_its_prefix_works_without_redis(
    backends: Backends, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    backend, token = await backends.open_started(redis_url, "one"), new_token()
    await backend.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, PROMISED_UNTIL, EDITION))
    await records.redis.set(backends.keys.owner(), "other")
    await run_advancing(backends.clock, backends.clock.sleep(2 * CHECK_SECONDS + 1))
    assert (backend.locks.state, backend.locks.is_shared) == ("degraded", False)
    assert isinstance(await backend.locks.renew(token, DURATION, EDITION), NotRenewed)
    (sentence,) = backends.reported
    assert "PEEKLOCK_REDIS_PREFIX" in sentence
    await records.redis.delete(backends.keys.owner())
    await run_advancing(backends.clock, backends.clock.sleep(CHECK_SECONDS + 1))
    assert backend.locks.state == "ok"
    assert isinstance(await backend.locks.renew(token, DURATION, EDITION), Renewed)


async def test_nothing_is_written_before_the_broker_has_the_prefix(
    backends: Backends, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    backend, token = backends.open(redis_url, "one"), new_token()
    await backend.locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, PROMISED_UNTIL, EDITION))
    assert await records.read(token) is None
    assert backend.locks.state == "degraded"


async def test_a_broker_that_started_without_redis_checks_once_redis_answers(
    backends: Backends, private_server: Callable[..., ServerProcess]
) -> None:
    server = private_server(RedisServer)
    server.stop()
    backend = await backends.open_started(server.url, "one")
    assert backend.locks.state == "degraded"
    server.start()
    async with Redis.from_url(server.url) as redis:
        await redis.set(backends.keys.owner(), "other")
        await run_advancing(backends.clock, backends.clock.sleep(CHECK_SECONDS))
        assert backend.locks.state == "degraded"
        assert "PEEKLOCK_REDIS_PREFIX" in backends.reported[-1]
        await redis.delete(backends.keys.owner())
    await run_advancing(backends.clock, backends.clock.sleep(CHECK_SECONDS))
    assert backend.locks.state == "ok"


async def test_an_unavailable_redis_prevents_no_start(keys: RedisKeys) -> None:
    nowhere = RedisOptions(f"redis://127.0.0.1:{free_port()}", "one", 0.2, keys.prefix)
    await acquire_prefix(nowhere, SystemClock(), lambda _name, _error: None)


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
