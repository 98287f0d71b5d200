"""Values are loaded once for all who ask together, kept for a while, and forgotten when told."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.runtime.cache import Cache
from tests.virtual_clock import VirtualClock, run_ready_tasks


class CountingLoader:
    """Where values come from: counts the loads and holds them back until released."""

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


async def test_a_value_is_kept_until_it_lapses(cache: Values, loader: CountingLoader, clock: VirtualClock) -> None:
    assert await cache.get("a") == "1"
    loader.values["a"] = "new"
    await clock.advance(4.999)
    assert await cache.get("a") == "1"
    await clock.advance(0.001)
    assert await cache.get("a") == "new"
    assert loader.loads == ["a", "a"]


async def test_its_time_starts_with_the_beginning_of_the_load(
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


async def test_many_who_ask_together_share_one_load(cache: Values, loader: CountingLoader) -> None:
    assert await asyncio.gather(*(cache.get("a") for _ in range(10))) == ["1"] * 10
    assert loader.loads == ["a"]


async def test_one_who_is_cancelled_leaves_the_load_to_the_others(cache: Values, loader: CountingLoader) -> None:
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


async def test_a_failure_reaches_everybody_and_is_not_kept(cache: Values, loader: CountingLoader) -> None:
    answers = await asyncio.gather(*(cache.get("new") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [KeyError] * 3
    loader.values["new"] = "here"
    assert await cache.get("new") == "here"
    assert loader.loads == ["new", "new"]


async def test_an_absence_that_load_returned_is_kept_like_a_value(cache: Values, loader: CountingLoader) -> None:
    assert [await cache.get("nothing"), await cache.get("nothing")] == [None, None]
    assert loader.loads == ["nothing"]


async def test_a_forgotten_value_is_loaded_again(cache: Values, loader: CountingLoader) -> None:
    await cache.get("a")
    loader.values["a"] = "new"
    cache.forget("a")
    cache.forget("never seen")
    assert await cache.get("a") == "new"


async def test_forgetting_during_a_load_keeps_its_stale_value_out(cache: Values, loader: CountingLoader) -> None:
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


async def test_clearing_forgets_what_is_kept_and_what_is_under_way(cache: Values, loader: CountingLoader) -> None:
    await cache.get("a")
    loader.released.clear()
    under_way = asyncio.create_task(cache.get("b"))
    await run_ready_tasks()
    cache.clear()
    loader.released.set()
    assert await under_way == "2"
    assert [await cache.get("a"), await cache.get("b")] == ["1", "2"]
    assert loader.loads == ["a", "b", "a", "b"]


async def test_the_oldest_value_makes_room(cache: Values, loader: CountingLoader) -> None:
    for key in ("a", "b", "c", "b", "c", "a"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "c", "a"]


async def test_a_value_loaded_again_is_no_longer_the_oldest(
    cache: Values, loader: CountingLoader, clock: VirtualClock
) -> None:
    await cache.get("a")
    await clock.advance(5)
    for key in ("b", "a", "c", "a"):
        await cache.get(key)
    assert loader.loads == ["a", "b", "a", "c"]


async def test_closing_leaves_no_load_behind(cache: Values, loader: CountingLoader) -> None:
    loader.released.clear()
    getting = asyncio.create_task(cache.get("a"))
    await run_ready_tasks()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await getting
