"""Servers hand over their counts, and each reads the sums of all once a window has ended. A server that is late is dropped."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from redis.asyncio import Redis

from app.broker.ports.server_directory import (
    LISTED_SECONDS,
    MAX_COUNTS,
    MAX_WINDOWS,
    WINDOW_SECONDS,
    AllReports,
    Counts,
    Server,
    ServerDirectory,
)
from app.domain.instant import DAY, MINUTE, SECOND, from_seconds
from app.locks.memory_server_directory import MemoryServerDirectory
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import WINDOW_KEYS, RedisKeys
from app.locks.redis_server_directory import MAX_AMOUNT, RedisServerDirectory
from tests.locks.lock_records import open_connection
from tests.locks.redis_time import Answers, RedisTime

WINDOW = from_seconds(WINDOW_SECONDS)
START = 1_800_000_000 * SECOND
MAX_SERVERS = 100


def server(name: str) -> Server:
    """A server of this name."""
    return Server(name, f"{name}.example", 17, "1.0", START)


@dataclass(frozen=True)
class DirectoryUnderTest:
    """The directory of one server, which reports under its own name."""

    directory: ServerDirectory
    server: Server

    async def report(self, counts: Counts | None = None) -> AllReports:
        """Report these counts. The directory must answer."""
        reports = await self.directory.report(self.server, counts or {})
        assert reports is not None
        return reports

    async def windows(self, counts: Counts | None = None) -> Sequence[Counts]:
        """Report, and return the windows of the answer."""
        return (await self.report(counts)).windows

    async def names(self) -> list[str]:
        """Report, and return the names of the servers that are listed."""
        return sorted(listed.server.id for listed in (await self.report()).servers)


@pytest.fixture
def time() -> RedisTime:
    """The time of Redis, at the beginning of a window."""
    return RedisTime(START)


@pytest.fixture
async def connection(redis_url: str, time: RedisTime) -> AsyncIterator[RedisConnection]:
    """A connection to a Redis that has the time of the test."""
    async with open_connection(redis_url, time.connection) as connection:
        yield connection


Open = Callable[[str], DirectoryUnderTest]


@pytest.fixture(name="open_one")
def provide_open_one(connection: RedisConnection, keys: RedisKeys) -> Open:
    """Open the directory of one more server: `open_one("a")`."""

    def open_one(name: str) -> DirectoryUnderTest:
        return DirectoryUnderTest(RedisServerDirectory(connection, keys, 0.5), server(name))

    return open_one


@pytest.fixture
def a(open_one: Open) -> DirectoryUnderTest:
    """A server."""
    return open_one("a")


@pytest.fixture
def b(open_one: Open) -> DirectoryUnderTest:
    """Another server of the same broker."""
    return open_one("b")


@pytest.fixture(params=["memory", "redis"])
def directory(request: pytest.FixtureRequest) -> DirectoryUnderTest:
    """Every directory in turn."""
    if request.param == "memory":
        return DirectoryUnderTest(MemoryServerDirectory(), server("a"))
    return request.getfixturevalue("a")


# ---- every directory -------------------------------------------------------------------------------------------------


async def test_a_server_finds_itself_as_it_has_described_itself(directory: DirectoryUnderTest) -> None:
    (listed,) = (await directory.report()).servers
    assert (listed.server, listed.age) == (directory.server, 0)


async def test_counts_return_once(directory: DirectoryUnderTest, time: RedisTime) -> None:
    counts, returned = {7: {"sent": 3, "completed": 1}, 8: {"sent": 1}}, list[Counts]()
    await directory.report()
    for handed_over in ({}, counts, {}, {}):
        time.now += WINDOW
        returned += await directory.windows(handed_over)
    assert [window for window in returned if window] == [counts]


async def test_a_server_that_leaves_hands_over_its_last_counts(directory: DirectoryUnderTest) -> None:
    await directory.report()
    assert await directory.directory.leave(directory.server, {7: {"sent": 1}}) is None


# ---- windows ---------------------------------------------------------------------------------------------------------


async def test_counts_of_all_servers_are_summed(a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime) -> None:
    for one in (a, b):
        await one.report()
    time.now += WINDOW
    await a.report({7: {"sent": 3, "completed": 1}})
    await b.report({7: {"sent": 2}, 8: {"failed": 1}})
    time.now += WINDOW
    sums = [{7: {"sent": 5, "completed": 1}, 8: {"failed": 1}}]
    assert [await one.windows() for one in (a, b)] == [sums, sums]


async def test_a_window_is_read_when_it_has_ended_and_only_then(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    await a.report()
    time.now += WINDOW - 1
    assert await a.windows({7: {"sent": 1}}) == []
    await b.report({7: {"sent": 1}})
    time.now += 1
    assert await a.windows() == [{7: {"sent": 2}}]


async def test_a_server_reads_from_the_window_of_its_first_report_on(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    await a.report({7: {"sent": 1}})
    time.now += WINDOW
    assert await b.windows({7: {"sent": 2}}) == []
    time.now += WINDOW
    assert await b.windows() == [{7: {"sent": 2}}]


async def test_a_window_without_events_is_empty(a: DirectoryUnderTest, time: RedisTime) -> None:
    await a.report()
    time.now += 3 * WINDOW
    assert await a.windows({7: {"sent": 1}}) == [{}, {}, {}]
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 1}}]


async def test_a_server_that_was_stopped_reads_the_newest_windows(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    await a.report()
    for number in range(1, 31):
        time.now += WINDOW
        await b.report({7: {"sent": number}})
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": number}} for number in range(31 - MAX_WINDOWS, 31)]


async def test_large_sums_are_exact(a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime) -> None:
    amounts = (2**55 + 1, 2**55)
    for one, amount in zip((a, b), amounts, strict=True):
        await one.report({7: {"waiting_time": amount}})
    time.now += WINDOW
    assert await a.windows() == [{7: {"waiting_time": sum(amounts)}}]


async def test_an_endless_amount_is_cut(a: DirectoryUnderTest, time: RedisTime) -> None:
    await a.report({7: {"waiting_micros": 1 << 70}})
    time.now += WINDOW
    assert await a.windows() == [{7: {"waiting_micros": MAX_AMOUNT}}]


async def test_reports_that_run_again_count_once(a: DirectoryUnderTest, open_one: Open, time: RedisTime) -> None:
    for amount in (1, 2):
        await a.report({7: {"sent": amount}})
    repeated = open_one("a")  # its reports have the numbers of those above
    for amount in (1, 2):
        await repeated.report({7: {"sent": amount}})
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 3}}]


async def test_a_window_has_a_limit_of_sums(a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime) -> None:
    first, others = 6_000, 5_000
    await a.report({queue_id: {"sent": 1} for queue_id in range(first)})
    await b.report({queue_id: {"sent": 1} for queue_id in range(first - 1, first + others)})
    await b.report({0: {"sent": 1}})
    time.now += WINDOW
    (window,) = await a.windows()
    assert len(window) == MAX_COUNTS
    assert (window[0], window[first - 1], window[MAX_COUNTS - 1]) == ({"sent": 2}, {"sent": 2}, {"sent": 1})


async def test_a_report_has_a_limit_of_counts(a: DirectoryUnderTest, time: RedisTime) -> None:
    await a.report({queue_id: {"sent": 1} for queue_id in range(2 * MAX_COUNTS)})
    assert time.most_bytes < len("10000:sent 1 ") * MAX_COUNTS


async def test_an_old_window_is_not_read_as_a_newer_one(a: DirectoryUnderTest, time: RedisTime) -> None:
    await a.report({7: {"sent": 1}})
    time.now += (WINDOW_KEYS + 1) * WINDOW
    assert await a.windows() == [{}] * MAX_WINDOWS


async def test_a_clock_that_is_set_back_delays_nothing_for_long(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    for one in (a, b):
        await one.report()
    time.now -= DAY
    assert await a.windows({7: {"sent": 1}}) == []
    assert await a.names() == ["a"]
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 1}}]


@pytest.mark.parametrize("back", [1, WINDOW, 5 * WINDOW, 2 * MINUTE])
@pytest.mark.parametrize("is_failover", [False, True])
async def test_a_window_that_was_read_is_not_read_again_after_the_clock_was_set_back(
    a: DirectoryUnderTest, time: RedisTime, back: int, is_failover: bool
) -> None:
    await a.report()
    returned = list[Counts]()
    for number in range(30):
        time.now += WINDOW
        returned += await a.windows({number: {"sent": 1}})
    time.now -= back
    if is_failover:
        time.answers = Answers.NONE
        assert await a.directory.report(a.server, {}) is None
        time.answers = Answers.ALL
    for number in range(30, 60):
        returned += await a.windows({number: {"sent": 1}})
        time.now += WINDOW
    seen = [queue_id for window in returned for queue_id in window]
    assert len(seen) == len(set(seen))
    assert 58 in seen


@pytest.mark.parametrize("into_window", [0, WINDOW // 3, WINDOW - 1])
async def test_reports_follow_in_each_window_far_from_its_ends(
    a: DirectoryUnderTest, time: RedisTime, into_window: int
) -> None:
    time.now += into_window
    next_at = time.now + from_seconds((await a.report()).next_seconds)
    assert next_at == START + WINDOW + WINDOW // 2


# ---- the list of servers ---------------------------------------------------------------------------------------------


async def test_servers_see_each_other_with_the_age_of_their_reports(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    await a.report()
    time.now += 4 * SECOND
    assert {(listed.server, listed.age) for listed in (await b.report()).servers} == {
        (a.server, 4 * SECOND),
        (b.server, 0),
    }


async def test_a_server_that_was_killed_is_listed_for_a_while(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime, redis_url: str, keys: RedisKeys
) -> None:
    await b.report()
    time.now += from_seconds(LISTED_SECONDS)
    assert await a.names() == ["a", "b"]
    time.now += 1
    assert await a.names() == ["a"]
    async with Redis.from_url(redis_url) as redis:
        assert await redis.execute_command("HKEYS", keys.servers()) == [b"a"]


async def test_a_server_that_leaves_is_listed_no_longer_and_its_last_counts_remain(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime
) -> None:
    for one in (a, b):
        await one.report()
    await b.directory.leave(b.server, {7: {"sent": 1}})
    assert await a.names() == ["a"]
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 1}}]


async def test_the_list_has_a_limit_and_counts_of_others_are_summed(open_one: Open, time: RedisTime) -> None:
    servers = [open_one(f"server-{number:03d}") for number in range(MAX_SERVERS + 1)]
    for one in servers:
        await one.report({7: {"sent": 1}})
    time.now += WINDOW
    first, last = servers[0], servers[-1]
    assert len(await first.names()) == MAX_SERVERS
    assert last.server.id not in await first.names()
    await last.report()
    time.now += WINDOW
    assert await first.windows({}) == [{}]


async def test_a_server_with_an_endless_description_is_not_listed(a: DirectoryUnderTest, b: DirectoryUnderTest) -> None:
    endless = replace(b.server, version="1" * 2000)
    assert await b.directory.report(endless, {}) is not None
    assert await a.names() == ["a"]


# ---- Redis -----------------------------------------------------------------------------------------------------------


async def test_a_description_of_another_version_is_left_out(
    a: DirectoryUnderTest, redis_url: str, keys: RedisKeys
) -> None:
    async with Redis.from_url(redis_url) as redis:
        newer = '{"id":"b","host":"b","process":1,"version":"2.0","started_at":1,"zone":"eu"}'
        for name, description in (("unknown", '{"name":"b"}'), ("newer", newer)):
            await redis.execute_command("HSET", keys.servers(), name, f"{START} 1 {description}")
    assert await a.names() == ["a", "b"]


@pytest.mark.parametrize(
    "entry",
    [
        "no report",
        f"{START} 1",
        f"{START} 1 not JSON",
        f"{START} 1 \ns x y\nw 7:sent 1",
        f"{START} 1 \xff",
        f'{START} 1 {{"zone":{"[" * 3000}',
        f'{START} 1 {{"id":"x","host":"x","process":1,"version":"1","started_at":{10**30}}}',
        f'{START} 1 {{"id":"x","host":"x","process":1,"version":"1","started_at":-{10**18}}}',
        f'{START} 1 {{"id":"x","host":"{"x" * 5000}","process":1,"version":"1","started_at":1}}',
    ],
)
async def test_an_entry_that_is_no_server_is_left_out(
    a: DirectoryUnderTest, redis_url: str, keys: RedisKeys, entry: str
) -> None:
    async with Redis.from_url(redis_url) as redis:
        await redis.execute_command("HSET", keys.servers(), "x", entry.encode("latin-1"))
    assert await a.names() == ["a"]
    assert await a.windows() == []


@pytest.mark.parametrize(
    "field", ["topic:sent", ":sent", "7", "7:", "7:sent away", "a b", "7:\xff", "\u0663:sent", f"{10**30}:sent"]
)
async def test_a_field_that_counts_nothing_of_a_queue_is_left_out(
    a: DirectoryUnderTest, time: RedisTime, redis_url: str, keys: RedisKeys, field: str
) -> None:
    await a.report({7: {"sent": 1}})
    async with Redis.from_url(redis_url) as redis:
        await _set_in_window(redis, keys, field, "5")
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 1}}]


@pytest.mark.parametrize("amount", ["-1", "many", "1.5", "", "9" * 5000, "\xff"])
async def test_an_amount_that_is_none_is_left_out(
    a: DirectoryUnderTest, time: RedisTime, redis_url: str, keys: RedisKeys, amount: str
) -> None:
    await a.report({7: {"sent": 1}})
    async with Redis.from_url(redis_url) as redis:
        await _set_in_window(redis, keys, "7:failed", amount)
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 1}}]


async def test_a_sum_that_cannot_grow_leaves_the_others_as_they_are(
    a: DirectoryUnderTest, time: RedisTime, redis_url: str, keys: RedisKeys
) -> None:
    await a.report({7: {"sent": 1}})
    async with Redis.from_url(redis_url) as redis:
        await _set_in_window(redis, keys, "7:failed", "many")
    await a.report({7: {"failed": 1, "sent": 1}})
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 2}}]


async def _set_in_window(redis: Redis, keys: RedisKeys, field: str, amount: str) -> None:
    """Set a field of the only window that has counts."""
    (window,) = [name for name in keys.windows() if await redis.exists(name)]
    await redis.execute_command("HSET", window, field.encode("latin-1", "replace"), amount.encode("latin-1"))


async def test_another_prefix_is_another_broker(
    a: DirectoryUnderTest, connection: RedisConnection, keys: RedisKeys
) -> None:
    other = RedisServerDirectory(connection, replace(keys, prefix=f"{keys.prefix}other:"), 0.5)
    await other.report(server("other"), {7: {"sent": 1}})
    assert await a.names() == ["a"]


async def test_redis_keeps_nothing_of_servers_that_are_gone(
    a: DirectoryUnderTest, redis_url: str, keys: RedisKeys
) -> None:
    await a.report({7: {"sent": 1}})
    async with Redis.from_url(redis_url) as redis:
        written = [key async for key in redis.scan_iter(f"{keys.prefix}*")]
        assert len(written) == 2
        assert {0 < seconds <= 120 for seconds in [await redis.ttl(key) for key in written]} == {True}


async def test_without_redis_nothing_is_known(a: DirectoryUnderTest, connection: RedisConnection) -> None:
    connection.is_enabled = False
    assert await a.directory.report(a.server, {7: {"sent": 1}}) is None
    assert await a.directory.leave(a.server, {7: {"sent": 1}}) is None


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_counts_whose_answer_was_lost_return_at_most_once(
    a: DirectoryUnderTest, b: DirectoryUnderTest, time: RedisTime, is_carried_out: bool
) -> None:
    for one in (a, b):
        await one.report()
    time.now += WINDOW
    time.answers = Answers.LOST if is_carried_out else Answers.NONE
    assert await a.directory.report(a.server, {7: {"sent": 1}}) is None
    time.answers = Answers.ALL
    time.now += WINDOW
    # The caller has shown these counts as its own, so they do not return to it.
    assert await a.windows({7: {"sent": 2}}) == []
    time.now += WINDOW
    assert await a.windows() == [{7: {"sent": 2}}]
    assert await b.windows() == [{}, {7: {"sent": 1}} if is_carried_out else {}, {7: {"sent": 2}}]
