"""Concurrent callers share one load; values are kept for a while, and forgotten on request."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from app.runtime.cache import Cache
from tests.virtual_clock import VirtualClock, run_ready_tasks


class CountingLoader:
    """The source of values: it counts the loads and holds them back until released."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.values: dict[str, str | None] = {}
        self.released = asyncio.Event()
        self.released.set()

    async def load(self, key: str) -> str | None:
        self.loads.append(key)
        value = self.values[key]
        await self.released.wait()
        return value


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def loader() -> CountingLoader:
    loader = CountingLoader()
    loader.values = {"a": "1", "b": "2", "c": "3", "nothing": None}
    return loader


@pytest.fixture
async def cache(loader: CountingLoader, clock: VirtualClock) -> AsyncIterator[Cache[str, str | None]]:
    cache = Cache(loader.load, clock, ttl_seconds=5, max_size=2)
    yield cache
    await cache.close()


Values = Cache[str, str | None]


async def test_a_value_is_kept_until_it_expires(cache: Values, loader: CountingLoader, clock: VirtualClock) -> None:
    assert await cache.get("a") == "1"
    loader.values["a"] = "new"
    await clock.advance(4.999)
    assert await cache.get("a") == "1"
    await clock.advance(0.001)
    assert await cache.get("a") == "new"
    assert loader.loads == ["a", "a"]


async def test_the_time_to_live_starts_with_the_load(
    cache: Values, loader: CountingLoader, clock: VirtualClock
) -> None:
    loader.released.clear()
    getting = asyncio.create_task(cache.get("a"))
    await clock.advance(3)
    loader.released.set()
    assert await getting == "1"
    await clock.advance(2)
    await cache.get("a")
    assert loader.loads == ["a", "a"]


async def test_concurrent_callers_share_one_load(cache: Values, loader: CountingLoader) -> None:
    assert await asyncio.gather(*(cache.get("a") for _ in range(10))) == ["1"] * 10
    assert loader.loads == ["a"]


async def test_a_cancelled_caller_leaves_the_load_to_the_others(cache: Values, loader: CountingLoader) -> None:
    loader.released.clear()
    first = asyncio.create_task(cache.get("a"))
    second = asyncio.create_task(cache.get("a"))
    await run_ready_tasks()
    first.cancel()
    await run_ready_tasks()
    loader.released.set()
    assert await second == "1"
    assert first.cancelled()
    assert loader.loads == ["a"]


async def test_a_failure_reaches_every_caller_and_is_not_kept(cache: Values, loader: CountingLoader) -> None:
    answers = await asyncio.gather(*(cache.get("new") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [KeyError] * 3
    loader.values["new"] = "here"
    assert await cache.get("new") == "here"
    assert loader.loads == ["new", "new"]


async def test_none_is_kept_like_a_value(cache: Values, loader: CountingLoader) -> None:
    assert [await cache.get("nothing"), await cache.get("nothing")] == [None, None]
    assert loader.loads == ["nothing"]


async def test_a_forgotten_value_is_loaded_again(cache: Values, loader: CountingLoader) -> None:
    await cache.get("a")
    loader.values["a"] = "new"
    cache.forget("a")
    cache.forget("never seen")
    assert await cache.get("a") == "new"


async def test_a_key_forgotten_during_its_load_keeps_no_stale_value(cache: Values, loader: CountingLoader) -> None:
    loader.released.clear()
    before = asyncio.create_task(cache.get("a"))
    await run_ready_tasks()
    loader.values["a"] = "new"
    cache.forget("a")
    after = asyncio.create_task(cache.get("a"))
    await run_ready_tasks()
    loader.released.set()
    assert [await before, await after] == ["1", "new"]
    assert await cache.get("a") == "new"
    assert loader.loads == ["a", "a"]


async def test_clear_drops_values_and_loads_under_way(cache: Values, loader: CountingLoader) -> None:
    await cache.get("a")
    loader.released.clear()
    under_way = asyncio.create_task(cache.get("b"))
    await run_ready_tasks()
    cache.clear()
    loader.released.set()
    assert await under_way == "2"
    assert [await cache.get("a"), await cache.get("b")] == ["1", "2"]
    assert loader.loads == ["a", "b", "a", "b"]


async def test_the_oldest_value_is_evicted(cache: Values, loader: CountingLoader) -> None:
    for key in ("a", "b", "c", "b", "c", "a"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "c", "a"]


async def test_a_reloaded_value_is_not_the_oldest(cache: Values, loader: CountingLoader, clock: VirtualClock) -> None:
    await cache.get("a")
    await clock.advance(5)
    for key in ("b", "a", "c", "a"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "a", "c"]


async def test_close_cancels_loads_under_way(cache: Values, loader: CountingLoader) -> None:
    loader.released.clear()
    getting = asyncio.create_task(cache.get("a"))
    await run_ready_tasks()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await getting


async def test_a_forgotten_value_is_freed(clock: VirtualClock) -> None:
    class Value:
        pass

    async def load(_: str) -> Value:
        return Value()

    cache = Cache(load, clock, ttl_seconds=10, max_size=10)
    value = weakref.ref(await cache.get("a"))
    assert value() is not None
    cache.forget("a")
    await run_ready_tasks()
    gc.collect()
    assert value() is None
    await cache.close()


async def test_a_load_drops_the_values_that_have_expired(clock: VirtualClock) -> None:
    class Value:
        """A value that can be watched."""

    async def load(_key: str) -> Value:
        return Value()

    cache = Cache(load, clock, ttl_seconds=5, max_size=10)
    old = weakref.ref(await cache.get("old"))
    await clock.advance(3)
    recent = weakref.ref(await cache.get("recent"))
    await clock.advance(3)
    await cache.get("new")
    gc.collect()
    assert old() is None
    assert recent() is not None
    await cache.close()


async def test_the_values_that_are_kept_weigh_no_more_than_the_limit(
    loader: CountingLoader, clock: VirtualClock
) -> None:
    loader.values = {"a": "1234", "b": "123", "c": "1234", "large": "123456789"}
    cache = Cache(loader.load, clock, ttl_seconds=5, max_size=9, weigh=lambda value: len(value or ""), max_weight=7)
    for key in ("a", "b", "b", "a", "c"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "c"], "two fit"
    await cache.get("b")
    assert loader.loads == ["a", "b", "c"]
    await cache.get("a")
    assert loader.loads == ["a", "b", "c", "a"], "the oldest was dropped"
    await cache.close()


async def test_a_value_above_the_weight_limit_is_kept_alone(loader: CountingLoader, clock: VirtualClock) -> None:
    loader.values = {"a": "1", "large": "123456789"}
    cache = Cache(loader.load, clock, ttl_seconds=5, max_size=9, weigh=lambda value: len(value or ""), max_weight=7)
    for key in ("a", "large", "large", "a", "large"):
        await cache.get(key)
    assert loader.loads == ["a", "large", "a", "large"]
    await cache.close()


async def test_a_forgotten_value_weighs_nothing(loader: CountingLoader, clock: VirtualClock) -> None:
    loader.values = {"a": "1234", "b": "1234", "c": "123"}
    cache = Cache(loader.load, clock, ttl_seconds=5, max_size=9, weigh=lambda value: len(value or ""), max_weight=7)
    await cache.get("a")
    cache.forget("a")
    await cache.get("b")
    cache.clear()
    for key in ("b", "c", "b", "c"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "b", "c"]
    await cache.close()
