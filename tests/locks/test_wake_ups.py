"""A ring that finds nobody waiting here reaches the other processes; losing one harms nobody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from app.locks import wake_ups
from app.locks.connect import connect
from app.locks.keys import Keys
from app.locks.link import Link
from app.locks.wake_ups import ALONE_SECONDS, GATHER_SECONDS, QUIET_SECONDS, LocalWakeUps, Notice, SharedWakeUps
from app.runtime.bell import Bell, Waiter
from app.runtime.clock import SystemClock
from tests.clock import VirtualClock, settle
from tests.locks.records import PATIENCE_SECONDS
from tests.servers import RedisServer

ORDERS, BILLS = 12, 13
WAIT_SECONDS = 20.0  # for what comes within moments unless the machine is very busy
GLANCE_SECONDS = 0.01


class Process:
    """What one process of the service has for wake-ups; bursts are gathered by a clock of the test."""

    def __init__(self, url: str, keys: Keys, origin: str) -> None:
        self.clock = VirtualClock()
        self.bell = Bell[int](SystemClock())
        self.failures: list[BaseException] = []
        self.link = Link(connect(url, patience_seconds=PATIENCE_SECONDS), SystemClock(), self.report)
        self.wake_ups = SharedWakeUps(self.bell, self.link, keys, origin, self.clock, self.report)
        self.forgotten = 0
        self.wake_ups.on_queues_changed = self.forget
        self.heard: list[tuple[int, Sequence[int]]] = []
        self.wake_ups.on_passed = lambda line, numbers: self.heard.append((line, numbers))
        self.wake_ups.start()

    def forget(self) -> None:
        self.forgotten += 1

    def report(self, name: str, error: BaseException) -> None:
        self.failures.append(error)

    async def aclose(self) -> None:
        await self.wake_ups.close()
        await self.link.close()


class Channel:
    """The channel as seen from outside."""

    def __init__(self, redis: Redis, keys: Keys, subscription: PubSub) -> None:
        self.redis = redis
        self.keys = keys
        self._subscription = subscription

    async def next(self) -> Notice:
        """What was told next."""
        message = await self._subscription.get_message(ignore_subscribe_messages=True, timeout=WAIT_SECONDS)
        return msgspec.json.decode(message["data"], type=Notice)

    async def tell(self, message: bytes) -> None:
        """Say something to every process."""
        await self.redis.publish(self.keys.channel(), message)

    async def has(self, listeners: int, queue_id: int | None = None) -> None:
        """Wait until so many listen, to what is said of a queue or else to what is said to all."""
        name = self.keys.channel() if queue_id is None else self.keys.channel_of(queue_id)
        async for _ in glances():
            ((_, count),) = await self.redis.pubsub_numsub(name)
            if count == listeners:
                return


@pytest.fixture
async def channel(redis_url: str, keys: Keys) -> AsyncIterator[Channel]:
    """The channel of this test."""
    async with Redis.from_url(redis_url) as redis, redis.pubsub() as subscription:
        await subscription.subscribe(keys.channel())
        await subscription.get_message(timeout=WAIT_SECONDS)
        await subscription.psubscribe(keys.channel() + ":*")
        await subscription.get_message(timeout=WAIT_SECONDS)
        yield Channel(redis, keys, subscription)


@pytest.fixture
async def here(redis_url: str, keys: Keys, channel: Channel) -> AsyncIterator[Process]:
    """This process."""
    async with contextlib.aclosing(Process(redis_url, keys, "here")) as process:
        await channel.has(listeners=2)
        yield process
        assert process.failures == []


@pytest.fixture
async def there(redis_url: str, keys: Keys, here: Process, channel: Channel) -> AsyncIterator[Process]:
    """Another process."""
    async with contextlib.aclosing(Process(redis_url, keys, "there")) as process:
        await channel.has(listeners=3)
        yield process


@pytest.fixture
async def waiter(there: Process, channel: Channel) -> AsyncIterator[Waiter[int]]:
    """Somebody in the other process who waits for orders."""
    with there.bell.waiter(ORDERS) as waiter:
        await channel.has(1, ORDERS)
        yield waiter


async def test_a_ring_reaches_who_waits_elsewhere(here: Process, waiter: Waiter[int]) -> None:
    here.wake_ups.ring(ORDERS)
    assert await waiter.rung(WAIT_SECONDS)


async def test_a_count_wakes_so_many_elsewhere(here: Process, there: Process, waiter: Waiter[int]) -> None:
    with there.bell.waiter(ORDERS) as second, there.bell.waiter(ORDERS) as third:
        here.wake_ups.ring(ORDERS, 2)
        assert await waiter.rung(WAIT_SECONDS)
        assert [await each.rung(0) for each in (second, third)] == [True, False]


async def test_who_waits_here_is_rung_first_and_only_the_rest_is_told(here: Process, channel: Channel) -> None:
    with here.bell.waiter(ORDERS) as nearer:
        here.wake_ups.ring(ORDERS)
        assert await nearer.rung(0)
        here.wake_ups.ring(ORDERS, 5)
        assert await nearer.rung(0)
    assert (await channel.next()).rings == {ORDERS: 4}


async def test_searches_elsewhere_hear_of_messages_although_all_are_woken_here(
    here: Process, there: Process, waiter: Waiter[int]
) -> None:
    with here.bell.waiter(ORDERS) as nearer:
        here.wake_ups.ring(ORDERS, 1, [7])
        assert await nearer.rung(0)
        async for _ in glances():
            if there.heard:
                break
    assert (here.heard, there.heard) == ([], [(ORDERS, [7])])
    assert not await waiter.rung(0)


async def test_a_ring_names_its_messages_to_searches_elsewhere(
    here: Process, waiter: Waiter[int], there: Process
) -> None:
    here.wake_ups.ring(ORDERS, 2, [7, 9])
    assert await waiter.rung(WAIT_SECONDS)
    assert there.heard == [(ORDERS, [7, 9])]


async def test_no_more_messages_are_named_than_a_notice_may_hold(here: Process, channel: Channel) -> None:
    here.wake_ups.ring(ORDERS, 1)
    await channel.next()
    for number in range(3):
        here.wake_ups.ring(ORDERS, 50, range(50 * number, 50 * number + 50))
    await gathered(here)
    notice = await channel.next()
    assert (notice.rings, notice.passed) == ({ORDERS: 150}, {ORDERS: list(range(100))})


async def test_a_burst_is_its_first_ring_at_once_and_then_one_message_a_queue_with_the_sum(
    here: Process, channel: Channel
) -> None:
    here.wake_ups.ring(ORDERS)
    assert (await channel.next()).rings == {ORDERS: 1}
    for _ in range(50):
        here.wake_ups.ring(ORDERS)
        await settle()
    here.wake_ups.ring(BILLS, 7)
    await gathered(here)
    assert (await channel.next()).rings == {ORDERS: 50}
    assert (await channel.next()).rings == {BILLS: 7}


async def test_after_silence_a_ring_leaves_at_once_again(here: Process, channel: Channel) -> None:
    here.wake_ups.ring(ORDERS)
    await channel.next()
    await gathered(here)
    here.wake_ups.ring(BILLS)
    assert (await channel.next()).rings == {BILLS: 1}


async def test_who_reaches_nobody_speaks_seldom(redis_url: str, keys: Keys) -> None:
    async with contextlib.aclosing(Process(redis_url, keys, "here")) as alone:
        alone.wake_ups.ring(ORDERS)
        await gathered(alone)
        assert alone.clock.timers == 1, "it still rests"
        await alone.clock.advance(ALONE_SECONDS)
        assert alone.clock.timers == 0


async def test_a_process_hears_of_a_queue_from_its_first_wait_until_a_ring_finds_nobody(
    here: Process, there: Process, channel: Channel
) -> None:
    await channel.has(0, ORDERS)
    for _ in range(2):
        with there.bell.waiter(ORDERS) as waiter:
            await channel.has(1, ORDERS)
            here.wake_ups.ring(ORDERS)
            assert await waiter.rung(WAIT_SECONDS)
            waiter.used()
        await gathered(here)
        here.wake_ups.ring(ORDERS)
        await channel.has(0, ORDERS)
        await gathered(here)


async def test_a_process_does_not_go_on_hearing_itself(here: Process, channel: Channel) -> None:
    with here.bell.waiter(ORDERS):
        await channel.has(1, ORDERS)
    here.wake_ups.ring(ORDERS)
    await channel.has(0, ORDERS)


async def test_nobody_hears_an_echo_of_himself(here: Process, channel: Channel) -> None:
    with here.bell.waiter(ORDERS) as own, here.bell.waiter(BILLS) as other:
        await channel.tell(b'{"origin": "here", "rings": {"12": 1}, "queues_changed": true}')
        await channel.tell(b'{"origin": "there", "rings": {"13": 1}}')
        assert await other.rung(WAIT_SECONDS)
        assert not await own.rung(0)
    assert here.forgotten == 0


async def test_others_forget_the_queues_when_one_was_changed_here(
    here: Process, there: Process, waiter: Waiter[int]
) -> None:
    here.wake_ups.queues_changed()
    here.wake_ups.ring(ORDERS)
    assert await waiter.rung(WAIT_SECONDS)
    assert (here.forgotten, there.forgotten) == (0, 1)


@pytest.mark.parametrize(
    "garbage", [b"\xff", b"12", b"{}", b'{"origin": "x", "rings": {"12": -1}}', b'{"origin": "x", "rings": "all"}']
)
async def test_a_message_it_cannot_read_is_reported_and_passed_over(
    here: Process, channel: Channel, garbage: bytes
) -> None:
    with here.bell.waiter(ORDERS) as waiter:
        await channel.tell(garbage)
        await channel.tell(b'{"origin": "a later release", "rings": {"12": 1}, "news": "unheard of"}')
        assert await waiter.rung(WAIT_SECONDS)
    assert isinstance(here.failures.pop(), msgspec.DecodeError)


async def test_a_change_of_the_schedule_is_for_this_process_alone(here: Process, channel: Channel) -> None:
    woken: list[bool] = []
    here.wake_ups.on_schedule_changed = lambda: woken.append(True)
    here.wake_ups.schedule_changed()
    assert woken == [True]
    here.wake_ups.ring(ORDERS)
    assert await channel.next() == Notice("here", {ORDERS: 1})


async def test_it_hears_again_after_redis_was_started_anew(
    private_server: Callable[..., RedisServer], keys: Keys
) -> None:
    server = private_server(RedisServer)
    async with (
        contextlib.aclosing(Process(server.url, keys, "here")) as here,
        contextlib.aclosing(Process(server.url, keys, "there")) as there,
    ):
        with there.bell.waiter(ORDERS) as waiter:
            await rung_in_the_end(here, waiter)
            server.kill()
            here.wake_ups.ring(ORDERS)
            await rests(there)
            server.start()
            await there.clock.advance(1.0)
            await rung_in_the_end(here, waiter)


async def test_without_redis_a_ring_still_wakes_who_waits_here(keys: Keys) -> None:
    async with contextlib.aclosing(Process("redis://127.0.0.1:1", keys, "here")) as here:
        with here.bell.waiter(ORDERS) as waiter:
            here.wake_ups.ring(ORDERS, 10)
            assert await waiter.rung(0)


async def test_alone_it_rings_here_and_wakes_the_schedule() -> None:
    bell, woken = Bell[int](SystemClock()), list[bool]()
    wake_ups = LocalWakeUps(bell)
    wake_ups.on_schedule_changed = lambda: woken.append(True)
    with bell.waiter(ORDERS) as waiter:
        wake_ups.ring(ORDERS)
        assert await waiter.rung(0)
    wake_ups.schedule_changed()
    wake_ups.queues_changed()
    assert woken == [True]


async def gathered(process: Process) -> None:
    """Let the time pass in which a burst is gathered, once its first message has left."""
    async for _ in glances():
        if process.clock.timers:
            break
    await process.clock.advance(GATHER_SECONDS)


async def rung_in_the_end(here: Process, waiter: Waiter[int]) -> None:
    """Ring as a steady stream of sends does until one of the rings arrives."""
    async for _ in glances():
        here.wake_ups.ring(ORDERS)
        if await waiter.rung(0.02):
            return
        await here.clock.advance(GATHER_SECONDS)


async def rests(process: Process) -> None:
    """Wait until the process has noticed that Redis is gone."""
    async for _ in glances():
        if process.failures and process.clock.timers:
            return


async def glances() -> AsyncIterator[None]:
    """Take turns with what happens elsewhere, until the patience of the test is at its end."""
    for _ in range(round(WAIT_SECONDS / GLANCE_SECONDS)):
        yield
        await asyncio.sleep(GLANCE_SECONDS)
    pytest.fail("what was waited for did not happen")


async def test_a_process_leaves_the_channel_of_a_queue_that_stays_quiet(here: Process, channel: Channel) -> None:
    with here.bell.waiter(BILLS):
        with here.bell.waiter(ORDERS):
            await channel.has(1, ORDERS)
        await channel.has(1, BILLS)
        await here.clock.advance(2 * QUIET_SECONDS)
        await channel.has(0, ORDERS)
        await channel.has(1, BILLS)
    await here.clock.advance(2 * QUIET_SECONDS)
    await channel.has(0, BILLS)
    assert here.clock.timers == 0


async def test_a_process_hears_of_a_bounded_number_of_queues(
    here: Process, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_ups, "MOST_LINES", 2)
    with contextlib.ExitStack() as waiting:
        for line in range(20, 40):
            waiting.enter_context(here.bell.waiter(line))
        await channel.has(1, 21)
        await channel.has(0, 22)
        await channel.has(0, 39)
    with here.bell.waiter(ORDERS) as waiter:
        await channel.has(1, ORDERS)
        here.wake_ups.ring(ORDERS)
        assert await waiter.rung(0)
