"""A wake-up without a local receiver reaches the other processes. A lost wake-up is harmless."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from app.locks.connect import connect
from app.locks.notifier import (
    ALONE_INTERVAL_SECONDS,
    IDLE_CHANNEL_SECONDS,
    MAX_CHANNELS,
    PUBLISH_INTERVAL_SECONDS,
    LocalNotifier,
    Notice,
    SharedNotifier,
)
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.runtime.clock import SystemClock
from app.runtime.wait_queue import Waiter, WaitQueue
from tests.locks.lock_records import TIMEOUT_SECONDS
from tests.servers import RedisServer
from tests.virtual_clock import VirtualClock, run_ready_tasks

ORDERS, BILLS = 12, 13
WAIT_SECONDS = 20.0  # for events that take moments, unless the machine is very busy
POLL_SECONDS = 0.01


class NotifierProcess:
    """The notifier of one server process, with the test's clock for its publish interval."""

    def __init__(self, url: str, keys: RedisKeys, origin: str) -> None:
        self.clock = VirtualClock()
        self.wait_queue = WaitQueue[int](SystemClock())
        self.failures: list[BaseException] = []
        self.connection = RedisConnection(connect(url, timeout_seconds=TIMEOUT_SECONDS), SystemClock(), self.report)
        self.notifier = SharedNotifier(self.wait_queue, self.connection, keys, origin, self.clock, self.report)
        self.queue_changes = 0
        self.notifier.on_queues_changed = self.count_queue_change
        self.available_messages: list[tuple[int, Sequence[int]]] = []
        self.notifier.on_messages_available = lambda queue_id, numbers: self.available_messages.append(
            (queue_id, numbers)
        )
        self.notifier.start()

    def count_queue_change(self) -> None:
        self.queue_changes += 1

    def report(self, name: str, error: BaseException) -> None:
        self.failures.append(error)

    async def aclose(self) -> None:
        await self.notifier.close()
        await self.connection.close()


class Channel:
    """The channel, read by the test."""

    def __init__(self, redis: Redis, keys: RedisKeys, subscription: PubSub) -> None:
        self.redis = redis
        self.keys = keys
        self._subscription = subscription

    async def next(self) -> Notice:
        """The next notice."""
        message = await self._subscription.get_message(ignore_subscribe_messages=True, timeout=WAIT_SECONDS)
        return msgspec.json.decode(message["data"], type=Notice)

    async def publish(self, message: bytes) -> None:
        """Publish a message to every process."""
        await self.redis.publish(self.keys.broadcast_channel(), message)

    async def has_subscribers(self, listeners: int, queue_id: int | None = None) -> None:
        """Wait until this many subscribe to the channel of a queue, or else to the broadcast channel."""
        name = self.keys.broadcast_channel() if queue_id is None else self.keys.channel_of(queue_id)
        async for _ in polls():
            ((_, count),) = await self.redis.pubsub_numsub(name)
            if count == listeners:
                return


@pytest.fixture
async def channel(redis_url: str, keys: RedisKeys) -> AsyncIterator[Channel]:
    """The channel of this test."""
    async with Redis.from_url(redis_url) as redis, redis.pubsub() as subscription:
        await subscription.subscribe(keys.broadcast_channel())
        await subscription.get_message(timeout=WAIT_SECONDS)
        await subscription.psubscribe(keys.broadcast_channel() + ":*")
        await subscription.get_message(timeout=WAIT_SECONDS)
        yield Channel(redis, keys, subscription)


@pytest.fixture
async def local(redis_url: str, keys: RedisKeys, channel: Channel) -> AsyncIterator[NotifierProcess]:
    """This process."""
    async with contextlib.aclosing(NotifierProcess(redis_url, keys, "here")) as process:
        await channel.has_subscribers(listeners=2)
        yield process
        assert process.failures == []


@pytest.fixture
async def remote(
    redis_url: str, keys: RedisKeys, local: NotifierProcess, channel: Channel
) -> AsyncIterator[NotifierProcess]:
    """Another process."""
    async with contextlib.aclosing(NotifierProcess(redis_url, keys, "there")) as process:
        await channel.has_subscribers(listeners=3)
        yield process


@pytest.fixture
async def waiter(remote: NotifierProcess, channel: Channel) -> AsyncIterator[Waiter[int]]:
    """A receiver of orders that waits in the other process."""
    with remote.wait_queue.waiter(ORDERS) as waiter:
        await channel.has_subscribers(1, ORDERS)
        yield waiter


async def test_a_wake_up_reaches_a_receiver_in_another_process(local: NotifierProcess, waiter: Waiter[int]) -> None:
    local.notifier.notify(ORDERS)
    assert await waiter.woken(WAIT_SECONDS)


async def test_a_count_wakes_that_many_receivers_in_another_process(
    local: NotifierProcess, remote: NotifierProcess, waiter: Waiter[int]
) -> None:
    with remote.wait_queue.waiter(ORDERS) as second, remote.wait_queue.waiter(ORDERS) as third:
        local.notifier.notify(ORDERS, 2)
        assert await waiter.woken(WAIT_SECONDS)
        assert [await each.woken(0) for each in (second, third)] == [True, False]


async def test_local_receivers_are_woken_first_and_only_the_rest_is_published(
    local: NotifierProcess, channel: Channel
) -> None:
    with local.wait_queue.waiter(ORDERS) as near:
        local.notifier.notify(ORDERS)
        assert await near.woken(0)
        local.notifier.notify(ORDERS, 5)
        assert await near.woken(0)
    assert (await channel.next()).wake_ups == {ORDERS: 4}


async def test_remote_searches_are_notified_although_local_receivers_are_woken(
    local: NotifierProcess, remote: NotifierProcess, waiter: Waiter[int]
) -> None:
    with local.wait_queue.waiter(ORDERS) as near:
        local.notifier.notify(ORDERS, 1, [7])
        assert await near.woken(0)
        async for _ in polls():
            if remote.available_messages:
                break
    assert (local.available_messages, remote.available_messages) == ([], [(ORDERS, [7])])
    assert not await waiter.woken(0)


async def test_a_wake_up_names_its_messages_to_remote_searches(
    local: NotifierProcess, waiter: Waiter[int], remote: NotifierProcess
) -> None:
    local.notifier.notify(ORDERS, 2, [7, 9])
    assert await waiter.woken(WAIT_SECONDS)
    assert remote.available_messages == [(ORDERS, [7, 9])]


async def test_no_more_messages_are_named_than_a_notice_may_hold(local: NotifierProcess, channel: Channel) -> None:
    local.notifier.notify(ORDERS, 1)
    await channel.next()
    for number in range(3):
        local.notifier.notify(ORDERS, 50, range(50 * number, 50 * number + 50))
    await pass_publish_interval(local)
    notice = await channel.next()
    assert (notice.wake_ups, notice.passed) == ({ORDERS: 150}, {ORDERS: list(range(100))})


async def test_a_burst_is_published_at_once_and_then_as_one_sum_per_queue(
    local: NotifierProcess, channel: Channel
) -> None:
    local.notifier.notify(ORDERS)
    assert (await channel.next()).wake_ups == {ORDERS: 1}
    for _ in range(50):
        local.notifier.notify(ORDERS)
        await run_ready_tasks()
    local.notifier.notify(BILLS, 7)
    await pass_publish_interval(local)
    assert (await channel.next()).wake_ups == {ORDERS: 50}
    assert (await channel.next()).wake_ups == {BILLS: 7}


async def test_after_a_pause_a_wake_up_is_published_at_once(local: NotifierProcess, channel: Channel) -> None:
    local.notifier.notify(ORDERS)
    await channel.next()
    await pass_publish_interval(local)
    local.notifier.notify(BILLS)
    assert (await channel.next()).wake_ups == {BILLS: 1}


async def test_a_process_without_others_publishes_less_often(redis_url: str, keys: RedisKeys) -> None:
    async with contextlib.aclosing(NotifierProcess(redis_url, keys, "here")) as alone:
        alone.notifier.notify(ORDERS)
        await pass_publish_interval(alone)
        assert alone.clock.timers == 1, "it still waits"
        await alone.clock.advance(ALONE_INTERVAL_SECONDS)
        assert alone.clock.timers == 0


async def test_a_process_subscribes_from_its_first_waiter_until_an_idle_wake_up(
    local: NotifierProcess, remote: NotifierProcess, channel: Channel
) -> None:
    await channel.has_subscribers(0, ORDERS)
    for _ in range(2):
        with remote.wait_queue.waiter(ORDERS) as waiter:
            await channel.has_subscribers(1, ORDERS)
            local.notifier.notify(ORDERS)
            assert await waiter.woken(WAIT_SECONDS)
            waiter.consume()
        await pass_publish_interval(local)
        local.notifier.notify(ORDERS)
        await channel.has_subscribers(0, ORDERS)
        await pass_publish_interval(local)


async def test_a_process_unsubscribes_after_its_own_idle_wake_up(local: NotifierProcess, channel: Channel) -> None:
    with local.wait_queue.waiter(ORDERS):
        await channel.has_subscribers(1, ORDERS)
    local.notifier.notify(ORDERS)
    await channel.has_subscribers(0, ORDERS)


async def test_a_process_ignores_its_own_notices(local: NotifierProcess, channel: Channel) -> None:
    with local.wait_queue.waiter(ORDERS) as own, local.wait_queue.waiter(BILLS) as other:
        await channel.publish(b'{"origin": "here", "rings": {"12": 1}, "queues_changed": true}')
        await channel.publish(b'{"origin": "there", "rings": {"13": 1}}')
        assert await other.woken(WAIT_SECONDS)
        assert not await own.woken(0)
    assert local.queue_changes == 0


async def test_a_queue_change_clears_the_caches_of_other_processes(
    local: NotifierProcess, remote: NotifierProcess, waiter: Waiter[int]
) -> None:
    local.notifier.queues_changed()
    local.notifier.notify(ORDERS)
    assert await waiter.woken(WAIT_SECONDS)
    assert (local.queue_changes, remote.queue_changes) == (0, 1)


@pytest.mark.parametrize(
    "garbage", [b"\xff", b"12", b"{}", b'{"origin": "x", "rings": {"12": -1}}', b'{"origin": "x", "rings": "all"}']
)
async def test_an_unreadable_message_is_reported_and_skipped(
    local: NotifierProcess, channel: Channel, garbage: bytes
) -> None:
    with local.wait_queue.waiter(ORDERS) as waiter:
        await channel.publish(garbage)
        await channel.publish(b'{"origin": "a later release", "rings": {"12": 1}, "news": "unheard of"}')
        assert await waiter.woken(WAIT_SECONDS)
    assert isinstance(local.failures.pop(), msgspec.DecodeError)


async def test_a_schedule_change_stays_in_this_process(local: NotifierProcess, channel: Channel) -> None:
    woken: list[bool] = []
    local.notifier.on_schedule_changed = lambda: woken.append(True)
    local.notifier.schedule_changed()
    assert woken == [True]
    local.notifier.notify(ORDERS)
    assert await channel.next() == Notice("here", {ORDERS: 1})


async def test_a_process_receives_again_after_redis_restarts(
    private_server: Callable[..., RedisServer], keys: RedisKeys
) -> None:
    server = private_server(RedisServer)
    async with (
        contextlib.aclosing(NotifierProcess(server.url, keys, "here")) as local,
        contextlib.aclosing(NotifierProcess(server.url, keys, "there")) as remote,
    ):
        with remote.wait_queue.waiter(ORDERS) as waiter:
            await eventually_woken(local, waiter)
            server.kill()
            local.notifier.notify(ORDERS)
            await wait_for_redis_failure(remote)
            server.start()
            await remote.clock.advance(1.0)
            await eventually_woken(local, waiter)


async def test_without_redis_a_wake_up_still_reaches_local_receivers(keys: RedisKeys) -> None:
    async with contextlib.aclosing(NotifierProcess("redis://127.0.0.1:1", keys, "here")) as local:
        with local.wait_queue.waiter(ORDERS) as waiter:
            local.notifier.notify(ORDERS, 10)
            assert await waiter.woken(0)


async def test_a_single_process_wakes_its_receivers_and_its_schedule() -> None:
    wait_queue, woken = WaitQueue[int](SystemClock()), list[bool]()
    local_notifier = LocalNotifier(wait_queue)
    local_notifier.on_schedule_changed = lambda: woken.append(True)
    with wait_queue.waiter(ORDERS) as waiter:
        local_notifier.notify(ORDERS)
        assert await waiter.woken(0)
    local_notifier.schedule_changed()
    local_notifier.queues_changed()
    assert woken == [True]


async def pass_publish_interval(process: NotifierProcess) -> None:
    """Let the publish interval pass after the first message was published."""
    async for _ in polls():
        if process.clock.timers:
            break
    await process.clock.advance(PUBLISH_INTERVAL_SECONDS)


async def eventually_woken(local: NotifierProcess, waiter: Waiter[int]) -> None:
    """Notify repeatedly, as a stream of sends does, until a wake-up arrives."""
    async for _ in polls():
        local.notifier.notify(ORDERS)
        if await waiter.woken(0.02):
            return
        await local.clock.advance(PUBLISH_INTERVAL_SECONDS)


async def wait_for_redis_failure(process: NotifierProcess) -> None:
    """Wait until the process has noticed that Redis is gone."""
    async for _ in polls():
        if process.failures and process.clock.timers:
            return


async def polls() -> AsyncIterator[None]:
    """Yield to other tasks until the test's timeout."""
    for _ in range(round(WAIT_SECONDS / POLL_SECONDS)):
        yield
        await asyncio.sleep(POLL_SECONDS)
    pytest.fail("the awaited event did not happen")


async def test_a_process_leaves_the_channel_of_a_queue_that_stays_quiet(
    local: NotifierProcess, channel: Channel
) -> None:
    with local.wait_queue.waiter(BILLS):
        with local.wait_queue.waiter(ORDERS):
            await channel.has_subscribers(1, ORDERS)
        await channel.has_subscribers(1, BILLS)
        await local.clock.advance(2 * IDLE_CHANNEL_SECONDS)
        await channel.has_subscribers(0, ORDERS)
        await channel.has_subscribers(1, BILLS)
    await local.clock.advance(2 * IDLE_CHANNEL_SECONDS)
    await channel.has_subscribers(0, BILLS)
    assert local.clock.timers == 0


async def test_a_process_subscribes_to_a_bounded_number_of_queues(local: NotifierProcess, channel: Channel) -> None:
    with contextlib.ExitStack() as waiting:
        for queue_id in range(20, 20 + MAX_CHANNELS + 2):
            waiting.enter_context(local.wait_queue.waiter(queue_id))
        await channel.has_subscribers(1, 20 + MAX_CHANNELS - 1)
        await channel.has_subscribers(0, 20 + MAX_CHANNELS)
        await channel.has_subscribers(0, 20 + MAX_CHANNELS + 1)
    with local.wait_queue.waiter(ORDERS) as waiter:
        await channel.has_subscribers(1, ORDERS)
        local.notifier.notify(ORDERS)
        assert await waiter.woken(0)
