"""With any failure of Redis, the lock store answers soon, and never claims more than it knows."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import LockRecord, NotRenewed, Renewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken
from app.locks.connect import connect
from app.locks.redis_connection import COOL_DOWN_SECONDS, FAILURES_TO_OPEN, RedisConnection
from app.locks.redis_keys import RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from tests.locks.conftest import NewToken
from tests.locks.faulty_peers import BlackHole, DelayingProxy
from tests.locks.lock_records import EDITION, IN_TIME, TIMEOUT_SECONDS, LockRecords
from tests.servers import RedisServer, free_port
from tests.virtual_clock import VirtualClock

DURATION = 30 * SECOND
NO_ANSWER_TIMEOUT = 0.2
"""Timeout in seconds for peers that never answer."""

SHORT, LONGER = 1.0, 1.5
"""Timeout and delay in seconds for answers that are late at first, and in time later."""

UNKNOWN = NotRenewed(asked_at=None, expired_generation=NO_EXPIRED_GENERATION)


class LockStoreUnderTest:
    """A lock store whose circuit breaker uses the test's clock; `failures` contains its reports."""

    def __init__(self, url: str, keys: RedisKeys, timeout_seconds: float) -> None:
        self.clock = VirtualClock()
        self.failures: list[BaseException] = []
        self.connection = RedisConnection(connect(url, timeout_seconds=timeout_seconds), self.clock, self._failed)
        self.locks = RedisLockStore(self.connection, keys)

    def _failed(self, _: str, error: BaseException) -> None:
        self.failures.append(error)

    async def cool_down(self) -> None:
        await self.clock.advance(COOL_DOWN_SECONDS)

    async def close(self) -> None:
        await self.locks.close()
        await self.connection.close()


@pytest.fixture
async def open_store(keys: RedisKeys):
    """Open lock stores that are closed with the test."""
    opened: list[LockStoreUnderTest] = []

    def open_one(url: str, timeout_seconds: float = NO_ANSWER_TIMEOUT) -> LockStoreUnderTest:
        opened.append(LockStoreUnderTest(url, keys, timeout_seconds))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def unreachable_url() -> Iterator[str]:
    """An address without a listener."""
    return f"redis://127.0.0.1:{free_port()}"


OpenStore = Callable[..., LockStoreUnderTest]


async def all_answers(locks: RedisLockStore, token: LockToken) -> list[object]:
    return [
        await locks.renew(token, DURATION, EDITION),
        await locks.write_record(token, LockRecord(1, DURATION, 4_000_000_000 * SECOND, IN_TIME, EDITION)),
        await locks.promises([token, token]),
        await locks.expired_generations([token, token]),
        await locks.delete_records([(token, 9)]),
        await locks.expired_records(100),
    ]


NOTHING_KNOWN = [UNKNOWN, None, [None, None], [NO_EXPIRED_GENERATION, NO_EXPIRED_GENERATION], None, []]


async def test_without_redis_every_answer_is_unknown(
    open_store: OpenStore, unreachable_url: str, new_token: NewToken
) -> None:
    store = open_store(unreachable_url)
    assert await all_answers(store.locks, new_token()) == NOTHING_KNOWN
    assert (store.locks.state, store.locks.is_shared) == ("degraded", False)


async def test_a_few_failures_in_a_row_degrade_it(
    open_store: OpenStore, unreachable_url: str, new_token: NewToken
) -> None:
    store = open_store(unreachable_url)
    for _ in range(FAILURES_TO_OPEN):
        assert (store.locks.state, store.locks.is_shared) == ("ok", True)
        await store.locks.renew(new_token(), DURATION, EDITION)
    assert (store.locks.state, store.locks.is_shared) == ("degraded", False)


async def test_failures_are_reported_once_per_cool_down(
    open_store: OpenStore, unreachable_url: str, new_token: NewToken
) -> None:
    store = open_store(unreachable_url)
    for expected in (1, 2, 3):
        for _ in range(10):
            await store.locks.renew(new_token(), DURATION, EDITION)
        assert len(store.failures) == expected
        await store.cool_down()


async def test_a_peer_that_never_answers_is_soon_not_called(open_store: OpenStore, new_token: NewToken) -> None:
    async with BlackHole().open() as hole:
        store = open_store(hole.url)
        assert await store.locks.renew(new_token(), DURATION, EDITION) == UNKNOWN
        assert await all_answers(store.locks, new_token()) == NOTHING_KNOWN
        connections = hole.connections
        for _ in range(20):
            assert await all_answers(store.locks, new_token()) == NOTHING_KNOWN
        assert hole.connections == connections == FAILURES_TO_OPEN
        await store.close()


async def test_one_trial_after_each_cool_down_checks_whether_redis_is_back(
    open_store: OpenStore, new_token: NewToken
) -> None:
    async with BlackHole().open() as hole:
        store = open_store(hole.url)
        for _ in range(FAILURES_TO_OPEN):
            await store.locks.renew(new_token(), DURATION, EDITION)
        await store.cool_down()
        await asyncio.gather(*(store.locks.renew(new_token(number), DURATION, EDITION) for number in range(50)))
        assert hole.connections == FAILURES_TO_OPEN + 1
        assert store.locks.state == "degraded"
        await store.close()


async def test_an_answer_after_the_timeout_does_not_count(
    open_store: OpenStore, redis_url: str, new_token: NewToken
) -> None:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    async with DelayingProxy(port, LONGER).open() as proxy:
        store = open_store(proxy.url, SHORT)
        assert await all_answers(store.locks, new_token()) == NOTHING_KNOWN
        assert store.locks.state == "degraded"
        proxy.seconds = 0.0
        await store.cool_down()
        assert (await store.locks.renew(new_token(), DURATION, EDITION)).asked_at is not None
        assert store.locks.state == "ok"
        await store.close()


async def test_a_late_answer_is_never_taken_for_that_of_another_command(
    open_store: OpenStore, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    alive, unknown = new_token(), new_token()
    async with DelayingProxy(port, 0.0).open() as proxy:
        store = open_store(proxy.url, SHORT)
        await store.locks.write_record(alive, LockRecord(1, DURATION, await records.now() + MINUTE, IN_TIME, EDITION))
        proxy.seconds = LONGER
        assert await store.locks.renew(alive, DURATION, EDITION) == UNKNOWN
        proxy.seconds = 0.0
        assert isinstance(await store.locks.renew(unknown, DURATION, EDITION), NotRenewed)
        assert isinstance(await store.locks.renew(alive, DURATION, EDITION), Renewed)
        await store.close()


async def test_a_redis_that_restarts_empty_proves_nothing(
    open_store: OpenStore, private_server: Callable[..., RedisServer], new_token: NewToken
) -> None:
    server = private_server(RedisServer)
    store, token = open_store(server.url, timeout_seconds=TIMEOUT_SECONDS), new_token()
    await store.locks.write_record(token, LockRecord(1, DURATION, 4_000_000_000 * SECOND, IN_TIME, EDITION))
    assert isinstance(await store.locks.renew(token, DURATION, EDITION), Renewed)
    server.kill()
    assert await all_answers(store.locks, token) == NOTHING_KNOWN
    assert store.locks.state == "degraded"
    server.start()
    assert await store.locks.renew(token, DURATION, EDITION) == UNKNOWN, "the breaker waits for its cool-down"
    await store.cool_down()
    answer = await store.locks.renew(token, DURATION, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.asked_at is not None
    assert answer.expired_generation == NO_EXPIRED_GENERATION, "an empty Redis proves nothing"
    assert (store.locks.state, store.locks.is_shared) == ("ok", True)


async def test_a_restart_between_two_calls_costs_at_most_one_answer(
    open_store: OpenStore, private_server: Callable[..., RedisServer], new_token: NewToken
) -> None:
    server = private_server(RedisServer)
    store = open_store(server.url, timeout_seconds=TIMEOUT_SECONDS)
    await asyncio.gather(*(store.locks.renew(new_token(number), DURATION, EDITION) for number in range(20)))
    server.kill()
    server.start()
    await store.locks.renew(new_token(), DURATION, EDITION)
    assert (await store.locks.renew(new_token(), DURATION, EDITION)).asked_at is not None
    assert store.locks.state == "ok"


async def test_a_redis_that_was_paused_is_used_again(
    open_store: OpenStore, private_server: Callable[..., RedisServer], new_token: NewToken
) -> None:
    server = private_server(RedisServer)
    store, token = open_store(server.url, SHORT), new_token()
    server.pause()
    assert await all_answers(store.locks, token) == NOTHING_KNOWN
    server.resume()
    await store.cool_down()
    assert (await store.locks.renew(token, DURATION, EDITION)).asked_at is not None


async def test_a_full_redis_is_degraded_until_it_accepts_records(
    open_store: OpenStore, private_server: Callable[..., RedisServer], keys: RedisKeys, new_token: NewToken
) -> None:
    server = private_server(RedisServer, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
    store, token = open_store(server.url, timeout_seconds=TIMEOUT_SECONDS), new_token()
    await store.locks.write_record(token, LockRecord(1, DURATION, 4_000_000_000 * SECOND, IN_TIME, EDITION))
    assert (await store.locks.renew(token, DURATION, EDITION)).asked_at is not None, "it still answers"
    assert (store.locks.state, store.locks.is_shared) == ("degraded", False)
    assert "maxmemory" in str(store.failures[0])
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("maxmemory", 0)
    await store.locks.write_record(token, LockRecord(1, DURATION, 4_000_000_000 * SECOND, IN_TIME, EDITION))
    assert (store.locks.state, store.locks.is_shared) == ("ok", True)


async def test_one_corrupt_record_does_not_affect_its_neighbours(
    open_store: OpenStore, redis_url: str, records: LockRecords, keys: RedisKeys, new_token: NewToken
) -> None:
    store = open_store(redis_url, timeout_seconds=TIMEOUT_SECONDS)
    corrupt, sound = new_token(1), new_token(64)
    await store.locks.write_record(sound, LockRecord(1, DURATION, await records.now() + MINUTE, IN_TIME, EDITION))
    await records.redis.hset(keys.record(corrupt), "not", "ours")
    answers = await asyncio.gather(
        store.locks.renew(corrupt, DURATION, EDITION), store.locks.renew(sound, DURATION, EDITION)
    )
    assert answers[0] == UNKNOWN
    assert isinstance(answers[1], Renewed)
    assert "WRONGTYPE" in str(store.failures[0])


async def test_a_cancelled_caller_does_not_affect_the_others(
    open_store: OpenStore, redis_url: str, records: LockRecords, new_token: NewToken
) -> None:
    store = open_store(redis_url, timeout_seconds=TIMEOUT_SECONDS)
    tokens = [new_token(number) for number in range(200)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(store.locks.write_record(token, LockRecord(1, DURATION, bound, IN_TIME, EDITION)) for token in tokens)
    )
    renewals = [asyncio.create_task(store.locks.renew(token, DURATION, EDITION)) for token in tokens]
    await asyncio.sleep(0)
    for cancelled in renewals[::2]:
        cancelled.cancel()
    assert all(isinstance(answer, Renewed) for answer in await asyncio.gather(*renewals[1::2]))
    assert store.failures == []
