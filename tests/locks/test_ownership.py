"""Two brokers under one prefix in Redis refuse each other; the processes of one broker share it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from app.broker.ports import LockRecord, NotRenewed, Renewed
from app.domain.instant import SECOND
from app.locks.keys import Keys
from app.locks.open import LockRoom, SharedRedis, open_locks, take_prefix
from app.locks.ownership import ASK_SECONDS, OWNED_SECONDS, PrefixInUse
from app.runtime.bell import Bell
from app.runtime.clock import SystemClock
from tests.clock import VirtualClock, through
from tests.locks.conftest import NewToken
from tests.locks.records import EDITION, PATIENCE_SECONDS, PROMISED, Records
from tests.servers import RedisServer, Server, free_port

D = 30 * SECOND
FAR = 4_000_000_000 * SECOND


class Rooms:
    """Opens the rooms of processes; `reported` is what they reported."""

    def __init__(self, keys: Keys) -> None:
        self.clock = VirtualClock()
        self.keys = keys
        self.reported: list[str] = []
        self.opened = AsyncExitStack()

    def open(self, url: str, broker: str) -> LockRoom:
        shared = SharedRedis(url, broker, PATIENCE_SECONDS, self.keys.prefix)
        room = open_locks(shared, Bell(self.clock), self.clock, self._report)
        self.opened.push_async_callback(room.close)
        return room

    def _report(self, _name: str, error: BaseException) -> None:
        self.reported.append(str(error))

    async def begun(self, url: str, broker: str) -> LockRoom:
        room = self.open(url, broker)
        await room.begin()
        return room


@pytest.fixture
async def rooms(keys: Keys) -> AsyncIterator[Rooms]:
    """Rooms that are closed with the test."""
    rooms = Rooms(keys)
    async with rooms.opened:
        yield rooms


async def test_a_second_broker_is_refused_with_what_to_do(rooms: Rooms, redis_url: str) -> None:
    await rooms.begun(redis_url, "one")
    with pytest.raises(PrefixInUse) as refused:
        await rooms.begun(redis_url, "other")
    sentence = str(refused.value)
    assert f"the prefix {rooms.keys.prefix!r}" in sentence
    assert "PEEKLOCK_REDIS_PREFIX" in sentence
    assert rooms.keys.owner() in sentence
    shared = SharedRedis(redis_url, "other", PATIENCE_SECONDS, rooms.keys.prefix)
    with pytest.raises(PrefixInUse):
        await take_prefix(shared, rooms.clock, _fail)


async def test_processes_of_one_broker_share_the_prefix(rooms: Rooms, redis_url: str, new_token: NewToken) -> None:
    one, other = await rooms.begun(redis_url, "one"), await rooms.begun(redis_url, "one")
    token = new_token()
    await one.locks.record(token, LockRecord(1, D, FAR, PROMISED, EDITION))
    assert isinstance(await other.locks.renew(token, D, EDITION), Renewed)
    assert (one.locks.state, other.locks.state) == ("ok", "ok")


async def test_brokers_with_prefixes_of_their_own_share_a_redis(redis_url: str, keys: Keys) -> None:
    one, other = Rooms(keys), Rooms(Keys(f"{keys.prefix}other:"))
    async with one.opened, other.opened:
        await one.begun(redis_url, "one")
        assert (await other.begun(redis_url, "other")).locks.state == "ok"


async def test_a_prefix_stays_with_its_broker_for_a_day(rooms: Rooms, redis_url: str, records: Records) -> None:
    room = await rooms.begun(redis_url, "one")
    await room.close()
    assert OWNED_SECONDS - 60 < await records.redis.ttl(rooms.keys.owner()) <= OWNED_SECONDS
    with pytest.raises(PrefixInUse):
        await rooms.begun(redis_url, "other")
    await records.redis.delete(rooms.keys.owner())
    await rooms.begun(redis_url, "other")


async def test_a_broker_takes_its_prefix_again_after_redis_was_emptied(
    rooms: Rooms, redis_url: str, records: Records
) -> None:
    await rooms.begun(redis_url, "one")
    await records.redis.delete(rooms.keys.owner())
    await through(rooms.clock, rooms.clock.sleep(ASK_SECONDS + 1))
    with pytest.raises(PrefixInUse):
        await rooms.begun(redis_url, "other")
    assert rooms.reported == []


async def test_a_broker_that_another_was_faster_than_does_without_redis(
    rooms: Rooms, redis_url: str, records: Records, new_token: NewToken
) -> None:
    room, token = await rooms.begun(redis_url, "one"), new_token()
    await room.locks.record(token, LockRecord(1, D, FAR, PROMISED, EDITION))
    await records.redis.set(rooms.keys.owner(), "other")
    await through(rooms.clock, rooms.clock.sleep(2 * ASK_SECONDS + 1))
    assert (room.locks.state, room.locks.is_shared) == ("degraded", False)
    assert isinstance(await room.locks.renew(token, D, EDITION), NotRenewed)
    (sentence,) = rooms.reported
    assert "PEEKLOCK_REDIS_PREFIX" in sentence
    await records.redis.delete(rooms.keys.owner())
    await through(rooms.clock, rooms.clock.sleep(ASK_SECONDS + 1))
    assert room.locks.state == "ok"
    assert isinstance(await room.locks.renew(token, D, EDITION), Renewed)


async def test_nothing_is_written_under_a_prefix_before_it_is_the_brokers_own(
    rooms: Rooms, redis_url: str, records: Records, new_token: NewToken
) -> None:
    room, token = rooms.open(redis_url, "one"), new_token()
    await room.locks.record(token, LockRecord(1, D, FAR, PROMISED, EDITION))
    assert await records.read(token) is None
    assert room.locks.state == "degraded"


async def test_a_broker_that_began_without_redis_asks_once_it_is_there(
    rooms: Rooms, private_server: Callable[..., Server]
) -> None:
    server = private_server(RedisServer)
    server.stop()
    room = await rooms.begun(server.url, "one")
    assert room.locks.state == "degraded"
    server.start()
    async with Redis.from_url(server.url) as redis:
        await redis.set(rooms.keys.owner(), "other")
        await through(rooms.clock, rooms.clock.sleep(ASK_SECONDS))
        assert room.locks.state == "degraded"
        assert "PEEKLOCK_REDIS_PREFIX" in rooms.reported[-1]
        await redis.delete(rooms.keys.owner())
    await through(rooms.clock, rooms.clock.sleep(ASK_SECONDS))
    assert room.locks.state == "ok"


async def test_a_redis_that_is_away_is_no_refusal(keys: Keys) -> None:
    nowhere = SharedRedis(f"redis://127.0.0.1:{free_port()}", "one", 0.2, keys.prefix)
    await take_prefix(nowhere, SystemClock(), lambda _name, _error: None)


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
