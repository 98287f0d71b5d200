"""Callers of one key run one at a time, in order, and callers of other keys do not wait."""

import asyncio

import pytest

from app.runtime.keyed_mutex import KeyedMutex
from tests.virtual_clock import run_ready_tasks


class MutexBusyError(Exception):
    """The error of these tests for a caller that does not get the mutex."""


class Callers:
    """Callers that hold the mutex until they are told to end."""

    def __init__(self, mutex: KeyedMutex) -> None:
        self.mutex = mutex
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def start(self, name: str, *keys: str) -> asyncio.Task[None]:
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._hold(name, keys))

    async def _hold(self, name: str, keys: tuple[str, ...]) -> None:
        async with self.mutex.hold(keys):
            self.began.append(name)
            await self.ends[name].wait()


@pytest.fixture
def callers() -> Callers:
    return Callers(KeyedMutex(max_callers=3, max_seconds=60, busy_error=MutexBusyError))


async def test_callers_of_one_key_follow_each_other_in_order(callers: Callers) -> None:
    tasks = [callers.start(name, "key") for name in "abc"]
    for begun in ("a", "ab", "abc"):
        await run_ready_tasks()
        assert callers.began == list(begun)
        callers.ends[begun[-1]].set()
    await asyncio.gather(*tasks)


async def test_callers_of_different_keys_do_not_wait_for_each_other(callers: Callers) -> None:
    tasks = [callers.start(name, name) for name in "abc"]
    await run_ready_tasks()
    assert callers.began == ["a", "b", "c"]
    for end in callers.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_callers_of_several_keys_do_not_deadlock(callers: Callers) -> None:
    tasks = [callers.start("a", "1", "2"), callers.start("b", "2", "1"), callers.start("c", "2", "2")]
    for end in callers.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert sorted(callers.began) == ["a", "b", "c"]


async def test_a_caller_beyond_the_limit_of_a_key_is_refused(callers: Callers) -> None:
    tasks = [callers.start(name, "key") for name in "abc"]
    await run_ready_tasks()
    with pytest.raises(MutexBusyError):
        await callers.start("d", "key")
    for end in callers.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_a_caller_that_waits_too_long_is_refused() -> None:
    callers = Callers(KeyedMutex(max_callers=3, max_seconds=0, busy_error=MutexBusyError))
    first = callers.start("a", "key")
    await run_ready_tasks()
    with pytest.raises(MutexBusyError):
        await callers.start("b", "key")
    callers.ends["a"].set()
    await first


async def test_a_cancelled_caller_releases_the_mutex_to_the_next(callers: Callers) -> None:
    first, second, third = (callers.start(name, "key") for name in "abc")
    await run_ready_tasks()
    second.cancel()
    first.cancel()
    callers.ends["c"].set()
    await asyncio.wait([first, second, third])
    assert callers.began == ["a", "c"]


async def test_a_caller_that_gives_up_leaves_its_place_to_another() -> None:
    callers = Callers(KeyedMutex(max_callers=2, max_seconds=60, busy_error=MutexBusyError))
    first, second = callers.start("a", "key"), callers.start("b", "key")
    await run_ready_tasks()
    second.cancel()
    await asyncio.wait([second])
    third = callers.start("c", "key")
    for end in callers.ends.values():
        end.set()
    await asyncio.gather(first, third)
    assert callers.began == ["a", "c"]


async def test_a_caller_that_fails_releases_the_mutex_to_the_next() -> None:
    mutex = KeyedMutex(max_callers=1, max_seconds=60, busy_error=MutexBusyError)
    with pytest.raises(ValueError, match="failed"):
        async with mutex.hold(["key"]):
            raise ValueError("failed")
    async with mutex.hold(["key"]):
        pass
