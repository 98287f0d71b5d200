"""Consumers report themselves, and are listed until the time of their last report is over."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from redis.asyncio import Redis

from app.broker.ports.consumer_directory import ConsumerDirectory
from app.domain.consumer import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_OF_QUEUE,
    MAX_REPORT_TTL,
    ConsumerReport,
    ConsumerState,
    ConsumersUnknown,
    ListedConsumer,
    TooManyConsumers,
)
from app.domain.instant import HOUR, SECOND, Duration, to_seconds
from app.locks.memory_consumer_directory import MemoryConsumerDirectory
from app.locks.redis_connection import RedisConnection
from app.locks.redis_consumer_directory import RedisConsumerDirectory
from app.locks.redis_keys import RedisKeys
from tests.locks.lock_records import open_connection
from tests.locks.redis_time import RedisTime
from tests.virtual_clock import VirtualClock

START = 1_800_000_000 * SECOND
QUEUE, OTHER_QUEUE = 7, 8
TTL = 60 * SECOND
WHY = "The circuit is open.\nIt stays so: 'é' \"x\" \\"


def receiving(consumer: str = "a", principal: str = "shop") -> ConsumerReport:
    """The report of a consumer that receives."""
    return ConsumerReport(consumer, principal, ConsumerState.RECEIVING, target="https://shop.example/hook")


def paused(consumer: str = "a", principal: str = "shop") -> ConsumerReport:
    """The report of a consumer that is paused."""
    return ConsumerReport(consumer, principal, ConsumerState.PAUSED, WHY)


@dataclass(frozen=True)
class DirectoryUnderTest:
    """A directory, and what lets time pass for it."""

    directory: ConsumerDirectory
    pass_time: Callable[[Duration], Awaitable[None]]

    async def report(self, report: ConsumerReport, ttl: Duration = TTL, queue_id: int = QUEUE) -> None:
        """Report a consumer of the queue."""
        await self.directory.report(queue_id, report, ttl)

    async def listed(self, queue_id: int = QUEUE) -> list[ListedConsumer]:
        """The consumers of the queue."""
        return [*await self.directory.of_queue(queue_id)]

    async def names(self, queue_id: int = QUEUE) -> list[str]:
        """The names of the consumers of the queue."""
        return [one.report.consumer for one in await self.listed(queue_id)]


@pytest.fixture
def time() -> RedisTime:
    """The time of Redis."""
    return RedisTime(START)


@pytest.fixture
async def connection(redis_url: str, time: RedisTime) -> AsyncIterator[RedisConnection]:
    """A connection to a Redis that has the time of the test."""
    async with open_connection(redis_url, time.connection) as connection:
        yield connection


@pytest.fixture
def in_redis(connection: RedisConnection, keys: RedisKeys, time: RedisTime) -> DirectoryUnderTest:
    """The directory in Redis."""

    async def pass_time(duration: Duration) -> None:
        time.now += duration

    return DirectoryUnderTest(RedisConsumerDirectory(connection, keys), pass_time)


@pytest.fixture(params=["memory", "redis"])
def directory(request: pytest.FixtureRequest) -> DirectoryUnderTest:
    """Every directory in turn."""
    if request.param == "redis":
        return request.getfixturevalue("in_redis")
    clock = VirtualClock(START)
    return DirectoryUnderTest(MemoryConsumerDirectory(clock), lambda duration: clock.advance(to_seconds(duration)))


# ---- every directory -------------------------------------------------------------------------------------------------


async def test_a_consumer_is_listed_as_it_has_reported_itself(directory: DirectoryUnderTest) -> None:
    await directory.report(paused())
    assert await directory.listed() == [ListedConsumer(paused(), START, START, START)]
    assert await directory.listed(OTHER_QUEUE) == []


async def test_a_report_ends_with_its_time(directory: DirectoryUnderTest) -> None:
    await directory.report(paused("a"), 10 * SECOND)
    await directory.report(receiving("b"), 20 * SECOND)
    await directory.pass_time(10 * SECOND - 1)
    assert await directory.names() == ["a", "b"]
    await directory.pass_time(1)
    assert await directory.names() == ["b"]
    assert await directory.directory.paused() == {}


async def test_the_last_report_counts(directory: DirectoryUnderTest) -> None:
    await directory.report(receiving(), 10 * SECOND)
    await directory.pass_time(9 * SECOND)
    await directory.report(paused(), 10 * SECOND)
    await directory.pass_time(9 * SECOND)
    (listed,) = await directory.listed()
    assert listed.report == paused()


async def test_a_state_lasts_until_a_report_of_another(directory: DirectoryUnderTest) -> None:
    for report in (receiving(), receiving(), paused(), paused()):
        await directory.report(report)
        await directory.pass_time(10 * SECOND)
    (listed,) = await directory.listed()
    assert (listed.first_reported_at, listed.state_since, listed.reported_at) == (
        START, START + 20 * SECOND, START + 30 * SECOND,
    )  # fmt: skip


async def test_a_consumer_that_comes_back_after_its_report_has_ended_is_new(directory: DirectoryUnderTest) -> None:
    await directory.report(paused(), SECOND)
    await directory.pass_time(SECOND)
    await directory.report(paused())
    (listed,) = await directory.listed()
    assert (listed.first_reported_at, listed.state_since) == (START + SECOND, START + SECOND)


async def test_consumers_of_different_principals_may_have_the_same_name(directory: DirectoryUnderTest) -> None:
    await directory.report(paused("a", "shop"))
    await directory.report(receiving("a", "bank"))
    assert [one.report for one in await directory.listed()] == [receiving("a", "bank"), paused("a", "shop")]
    await directory.directory.remove(QUEUE, "shop", "a")
    assert [one.report for one in await directory.listed()] == [receiving("a", "bank")]


async def test_a_consumer_that_was_removed_is_not_listed(directory: DirectoryUnderTest) -> None:
    await directory.report(paused("a"))
    await directory.report(paused("a"), queue_id=OTHER_QUEUE)
    for _ in range(2):
        await directory.directory.remove(QUEUE, "shop", "a")
    assert await directory.names() == []
    assert await directory.names(OTHER_QUEUE) == ["a"]


async def test_consumers_are_listed_by_name(directory: DirectoryUnderTest) -> None:
    for consumer in ("c", "a", "b"):
        await directory.report(receiving(consumer))
    assert await directory.names() == ["a", "b", "c"]


async def test_paused_consumers_of_all_queues_are_found(directory: DirectoryUnderTest) -> None:
    await directory.report(paused("b"))
    await directory.report(paused("a"))
    await directory.report(receiving("c"))
    await directory.report(receiving("a"), queue_id=OTHER_QUEUE)
    found = await directory.directory.paused()
    assert {queue: [one.report.consumer for one in of_queue] for queue, of_queue in found.items()} == {
        QUEUE: ["a", "b"]
    }


async def test_a_queue_has_a_limit_of_consumers(directory: DirectoryUnderTest) -> None:
    for number in range(MAX_CONSUMERS_OF_QUEUE):
        await directory.report(receiving(f"c{number}"))
    with pytest.raises(TooManyConsumers):
        await directory.report(receiving("one-more"))
    await directory.report(paused("c0"))
    await directory.report(receiving("other"), queue_id=OTHER_QUEUE)
    assert len(await directory.listed()) == MAX_CONSUMERS_OF_QUEUE
    await directory.pass_time(TTL)
    await directory.report(receiving("one-more"))


async def test_all_queues_together_have_a_limit_of_consumers(directory: DirectoryUnderTest) -> None:
    for number in range(MAX_CONSUMERS):
        await directory.report(receiving(), queue_id=number)
    with pytest.raises(TooManyConsumers):
        await directory.report(receiving(), queue_id=MAX_CONSUMERS)
    await directory.report(paused(), queue_id=0)


# ---- Redis -----------------------------------------------------------------------------------------------------------


async def test_the_scripts_know_the_longest_time_of_a_report(in_redis: DirectoryUnderTest) -> None:
    await in_redis.report(paused(), MAX_REPORT_TTL)
    assert await in_redis.names() == ["a"]


async def test_a_report_from_before_the_clock_was_set_back_is_dropped(in_redis: DirectoryUnderTest) -> None:
    await in_redis.report(paused())
    await in_redis.pass_time(-HOUR)
    assert await in_redis.names() == []


async def test_reports_whose_ends_redis_has_evicted_count_no_longer(
    in_redis: DirectoryUnderTest, redis_url: str, keys: RedisKeys
) -> None:
    await in_redis.report(paused("gone"))
    async with Redis.from_url(redis_url) as redis:
        await redis.delete(keys.consumers()[1])
    await in_redis.report(receiving("a"))
    await in_redis.pass_time(HOUR)
    await in_redis.report(receiving("a"))
    assert await in_redis.names() == ["a"]


async def test_without_redis_nothing_is_known(in_redis: DirectoryUnderTest, connection: RedisConnection) -> None:
    await in_redis.report(paused())
    connection.is_enabled = False
    directory = in_redis.directory
    for call in (
        directory.report(QUEUE, paused(), TTL),
        directory.remove(QUEUE, "shop", "a"),
        directory.of_queue(QUEUE),
        directory.paused(),
    ):
        with pytest.raises(ConsumersUnknown):
            await call


@pytest.mark.parametrize(
    "entry",
    ["no report", f"{START} {START} {START} paused not JSON", f"{START} {START} {START} paused {{}}", f"1 1 1 paused {'[' * 3000}"],
)  # fmt: skip
async def test_an_entry_that_is_no_report_is_left_out(
    in_redis: DirectoryUnderTest, redis_url: str, keys: RedisKeys, entry: str
) -> None:
    await in_redis.report(paused())
    async with Redis.from_url(redis_url) as redis:
        reports, ends = keys.consumers()
        await redis.execute_command("HSET", reports, f"{QUEUE} x shop", entry)
        await redis.execute_command("ZADD", ends, START + TTL, f"{QUEUE} x shop")
    assert await in_redis.names() == ["a"]


async def test_another_prefix_is_another_broker(
    in_redis: DirectoryUnderTest, connection: RedisConnection, keys: RedisKeys
) -> None:
    other = RedisConsumerDirectory(connection, replace(keys, prefix=f"{keys.prefix}other:"))
    await other.report(QUEUE, paused(), TTL)
    assert await in_redis.names() == []


async def test_redis_keeps_nothing_of_consumers_that_are_gone(
    in_redis: DirectoryUnderTest, redis_url: str, keys: RedisKeys
) -> None:
    await in_redis.report(paused())
    async with Redis.from_url(redis_url) as redis:
        assert {0 < await redis.ttl(key) <= 600 for key in keys.consumers()} == {True}
        await in_redis.directory.remove(QUEUE, "shop", "a")
        assert [await redis.exists(key) for key in keys.consumers()] == [0, 0]
