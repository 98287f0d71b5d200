"""Redis crashes, loses or reverts data, is slow or silent: requests keep succeeding and no promise is broken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from app.domain.instant import MINUTE
from tests.faults.conftest import StartFleet
from tests.faults.conservation import EARLY
from tests.faults.database_access import pass_time, pass_time_for_locks
from tests.faults.fleet import LONG_REDIS_TIMEOUT, Clients, Fleet, PeeklockServer
from tests.faults.journal import NO_ANSWER
from tests.faults.polling import POLL_SECONDS, TIMEOUT_SECONDS, in_background, wait_until
from tests.faults.proxies import FaultyProxy
from tests.servers import RedisServer, ServerProcess


@pytest.fixture
def lock_store(private_server: Callable[..., ServerProcess]) -> RedisServer:
    """A Redis that this test may hurt."""
    server = private_server(RedisServer)
    assert isinstance(server, RedisServer)
    return server


@asynccontextmanager
async def working_fleet(
    start_fleet: StartFleet, database: str, *redis_urls: str, **load: Any
) -> AsyncIterator[tuple[Fleet, Clients]]:
    """Servers, one for each of these ways to Redis, under load; in the end all requests have succeeded."""
    fleet = start_fleet(database)
    servers = await asyncio.gather(*(fleet.serve(PEEKLOCK_REDIS_URL=url) for url in redis_urls))
    fleet.servers = servers  # in this order, even if the second was ready first
    await fleet.create_queue(servers[0].url)
    clients = await fleet.start_clients(*(server.url for server in servers), **load)
    yield fleet, clients
    await clients.end()
    assert [call for call in fleet.calls() if call.status == NO_ANSWER or call.status >= 500] == []


async def wait_for_lock_store_state(server: PeeklockServer, state: str) -> None:
    """Return once the server says so of its lock store, for which it does not ask it."""
    await wait_until(lambda: server.lock_store() == state, f"the lock store is {state}")


RECORD = re.compile(rb"peeklock:\{\d+\}:lock:\d+\.[0-9a-f]{32}")
"""The key of the record of a lock."""


@pytest.mark.behaviour("S3.32")
@pytest.mark.faults
async def test_redis_is_killed_and_comes_back_empty(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    # A renewed lock without a record would last for the whole lead, a minute.
    load = {"messages": 60, "without": ["renew and forget"]}
    async with working_fleet(start_fleet, postgres_url, lock_store.url, **load) as (fleet, clients):
        await clients.until_sent(20)
        lock_store.kill()
        await clients.until_sent(40)
        await wait_for_lock_store_state(fleet.servers[0], "degraded")
        await asyncio.to_thread(lock_store.start)
        await wait_for_lock_store_state(fleet.servers[0], "ok")
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_forgets_everything_again_and_again(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    forgotten = 0

    async def forget() -> None:
        nonlocal forgotten
        async with redis.asyncio.Redis.from_url(lock_store.url) as client:
            while True:
                await asyncio.sleep(3)
                forgotten += len(await records(client))
                await client.flushall()

    urls = (lock_store.url, lock_store.url)
    async with in_background(forget()), working_fleet(start_fleet, postgres_url, *urls, messages=1000) as (fleet, _):
        pass
    assert forgotten
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_evicts_records(start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer) -> None:
    evicted = 0

    async def evict() -> None:
        nonlocal evicted
        async with redis.asyncio.Redis.from_url(lock_store.url) as client:
            while True:
                if (key := await client.randomkey()) is not None:
                    evicted += await client.delete(key) if RECORD.fullmatch(key) else 0
                await asyncio.sleep(POLL_SECONDS)

    urls = (lock_store.url, lock_store.url)
    async with in_background(evict()), working_fleet(start_fleet, postgres_url, *urls, messages=400) as (fleet, _):
        pass
    assert evicted
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_a_stale_replica_of_redis_is_promoted(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        redis.asyncio.Redis.from_url(lock_store.url) as client,
        working_fleet(start_fleet, postgres_url, lock_store.url, lock_store.url, messages=400) as (fleet, clients),
    ):
        lost = stale = 0
        for sent in (100, 200, 300):
            await clients.until_sent(sent - 50)
            old = await dump(client)
            await clients.until_sent(sent)
            lost += len(await records(client) - old.keys())
            stale += len(old.keys() - await records(client))
            await client.flushall()
            for key, value in old.items():
                if value is not None:
                    await client.restore(key, 0, value, replace=True)
        assert lost
        assert stale
    assert fleet.broken_promises(excused=EARLY) == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_answers_late(start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer) -> None:
    async with (
        FaultyProxy(lock_store.port).open() as proxy,
        working_fleet(start_fleet, postgres_url, proxy_url(proxy), lock_store.url, messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        proxy.delay = 0.3
        await wait_for_lock_store_state(fleet.servers[0], "degraded")
        await clients.until_sent(300)
        proxy.delay = 0.0
        await wait_for_lock_store_state(fleet.servers[0], "ok")
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_takes_everything_and_answers_nothing(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        FaultyProxy(lock_store.port).open() as proxy,
        working_fleet(start_fleet, postgres_url, proxy_url(proxy), proxy_url(proxy), messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        proxy.pause()
        for server in fleet.servers:
            await wait_for_lock_store_state(server, "degraded")
        await clients.until_sent(300)
        proxy.resume()
        for server in fleet.servers:
            await wait_for_lock_store_state(server, "ok")
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_is_cut_off_for_one_replica(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        FaultyProxy(lock_store.port).open() as proxy,
        working_fleet(start_fleet, postgres_url, proxy_url(proxy), lock_store.url, messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        proxy.is_closed = True
        proxy.cut()
        cut_off, connected = fleet.servers
        await wait_for_lock_store_state(cut_off, "degraded")
        await clients.until_sent(300)
        assert await asyncio.to_thread(connected.lock_store) == "ok"
        proxy.is_closed = False
        await wait_for_lock_store_state(cut_off, "ok")
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_redis_is_stopped_and_goes_on(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with working_fleet(start_fleet, postgres_url, lock_store.url, lock_store.url, messages=400) as (
        fleet,
        clients,
    ):
        for sent in (100, 250):
            await clients.until_sent(sent)
            lock_store.pause()
            for server in fleet.servers:
                await wait_for_lock_store_state(server, "degraded")
            await asyncio.sleep(5)  # longer than the locks of this queue
            lock_store.resume()
            for server in fleet.servers:
                await wait_for_lock_store_state(server, "ok")
    assert fleet.broken_promises() == []


# ---- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize(
    ("jump", "passed"),
    [
        pytest.param(2 * MINUTE, 0, id="a record ends before its lock"),
        pytest.param(-2 * MINUTE, 10 * MINUTE, id="a record outlives its lock"),
    ],
)
async def test_the_clock_of_redis_jumps_under_one_lock(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer, jump: int, passed: int
) -> None:
    """The stored times jump instead, which is the same to every script; SQL, on its own clock, decides all the same."""
    fleet = start_fleet(postgres_url, PEEKLOCK_REDIS_URL=lock_store.url, **LONG_REDIS_TIMEOUT)
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with fleet.client(server.url) as holder, fleet.client(server.url) as rival:
        await holder.send("m0", b"body")
        (held,) = await holder.receive_until_any(wait_seconds=5, lock_seconds=60)
        assert (await holder.settle("renew", held["lock_token"], lock_seconds=60))[0] == 200
        assert await asyncio.to_thread(pass_time_for_locks, lock_store.url, jump) == 1
        await asyncio.to_thread(pass_time, postgres_url, passed)
        (again,) = await rival.receive_until_any(wait_seconds=5, lock_seconds=60)
        assert (await holder.settle("complete", held["lock_token"]))[0] == 410
        assert (await rival.settle("complete", again["lock_token"]))[0] == 200
    assert fleet.broken_promises(excused=EARLY) == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_the_clock_of_redis_jumps_a_minute(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    urls = (lock_store.url, lock_store.url)
    async with working_fleet(start_fleet, postgres_url, *urls, messages=400) as (fleet, clients):
        moved = 0
        for sent, jump in ((80, MINUTE), (140, -MINUTE), (200, MINUTE), (260, MINUTE), (320, -MINUTE), (380, MINUTE)):
            await clients.until_sent(sent)
            moved += await asyncio.to_thread(pass_time_for_locks, lock_store.url, jump)
        assert moved
    assert fleet.broken_promises(excused=EARLY) == []


# ---- what tests do to it ---------------------------------------------------------------------------------------------


async def dump(client: redis.asyncio.Redis) -> dict[bytes, bytes | None]:
    """All that it holds, once a lock is among it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            held = {key: await client.dump(key) async for key in client.scan_iter()}
            if any(map(RECORD.fullmatch, held)):
                return held
            await asyncio.sleep(POLL_SECONDS)


async def records(client: redis.asyncio.Redis) -> set[bytes]:
    """The keys of all records of locks."""
    return {key async for key in client.scan_iter() if RECORD.fullmatch(key)}


def proxy_url(proxy: FaultyProxy) -> str:
    """The address of Redis by this way."""
    return f"redis://127.0.0.1:{proxy.port}/0"
