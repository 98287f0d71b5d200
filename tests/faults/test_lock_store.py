"""Redis that dies, forgets, lies, is late or silent: requests keep succeeding and no promise is broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from tests.faults.conftest import StartFleet
from tests.faults.conservation import EARLY
from tests.faults.fleet import Clients, Fleet
from tests.faults.journal import NOT_HEARD
from tests.faults.proxy import Wire
from tests.faults.waiting import GLANCE, meanwhile
from tests.servers import RedisServer, Server


@pytest.fixture
def lock_store(private_server: Callable[..., Server]) -> RedisServer:
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
    await fleet.create_queue(servers[0].url)
    clients = await fleet.work(*(server.url for server in servers), **load)
    yield fleet, clients
    await clients.end()
    assert [call for call in fleet.calls() if call.status == NOT_HEARD or call.status >= 500] == []


@pytest.mark.faults("short")
async def test_redis_is_killed_and_comes_back_empty(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    # What was renewed and forgotten would come back after the whole lead, a minute, for want of evidence.
    load = {"messages": 60, "without": ["renew and forget"]}
    async with working_fleet(start_fleet, postgres_url, lock_store.url, **load) as (fleet, clients):
        await clients.until_sent(20)
        lock_store.kill()
        await clients.until_sent(40)
        await asyncio.to_thread(lock_store.start)
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
async def test_redis_forgets_everything_again_and_again(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async def forget() -> None:
        async with redis.asyncio.Redis.from_url(lock_store.url) as client:
            while True:
                await asyncio.sleep(3)
                await client.flushall()

    urls = (lock_store.url, lock_store.url)
    async with meanwhile(forget()), working_fleet(start_fleet, postgres_url, *urls, messages=1000) as (fleet, _):
        pass
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
async def test_redis_evicts_records(start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer) -> None:
    async def evict() -> None:
        async with redis.asyncio.Redis.from_url(lock_store.url) as client:
            while True:
                if (key := await client.randomkey()) is not None:
                    await client.delete(key)
                await asyncio.sleep(GLANCE)

    urls = (lock_store.url, lock_store.url)
    async with meanwhile(evict()), working_fleet(start_fleet, postgres_url, *urls, messages=400) as (fleet, _):
        pass
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
async def test_a_stale_replica_of_redis_is_promoted(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        redis.asyncio.Redis.from_url(lock_store.url) as client,
        working_fleet(start_fleet, postgres_url, lock_store.url, lock_store.url, messages=400) as (fleet, clients),
    ):
        for sent in (100, 200, 300):
            old = {key: await client.dump(key) async for key in client.scan_iter()}
            await clients.until_sent(sent)
            await client.flushall()
            for key, value in old.items():
                if value is not None:
                    await client.restore(key, 0, value, replace=True)
    assert fleet.broken_promises(excused=EARLY) == []


@pytest.mark.faults("all")
async def test_redis_answers_late(start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer) -> None:
    async with (
        Wire(lock_store.port).open() as wire,
        working_fleet(start_fleet, postgres_url, way(wire), lock_store.url, messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        wire.delay = 0.3
        await clients.until_sent(300)
        wire.delay = 0.0
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
async def test_redis_takes_everything_and_answers_nothing(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        Wire(lock_store.port).open() as wire,
        working_fleet(start_fleet, postgres_url, way(wire), way(wire), messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        wire.fall_silent()
        await clients.until_sent(300)
        wire.speak()
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
async def test_redis_is_cut_off_for_one_replica(
    start_fleet: StartFleet, postgres_url: str, lock_store: RedisServer
) -> None:
    async with (
        Wire(lock_store.port).open() as wire,
        working_fleet(start_fleet, postgres_url, way(wire), lock_store.url, messages=400) as (fleet, clients),
    ):
        await clients.until_sent(100)
        wire.is_closed = True
        wire.cut()
        await clients.until_sent(300)
        wire.is_closed = False
    assert fleet.broken_promises() == []


@pytest.mark.faults("all")
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
            await asyncio.sleep(5)
            lock_store.resume()
    assert fleet.broken_promises() == []


def way(wire: Wire) -> str:
    """The address of Redis by this way."""
    return f"redis://127.0.0.1:{wire.port}/0"
