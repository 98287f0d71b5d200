"""A loop repeats its pass, rests as told, survives failures and stops gracefully."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.runtime.loop import Loop, Rests
from tests.clock import VirtualClock, settle

EXACT = Rests(idle_seconds=7, first_failure_seconds=1, largest_failure_seconds=4, jitter=lambda: 0.0)


class Rig:
    """A loop whose passes do what the test says, and a record of when each began and what went wrong."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.began: list[float] = []
        self.reports: list[tuple[str, BaseException]] = []
        self.work: Callable[[], Awaitable[float | None]] = self.rest_for(10)
        self.loop = Loop("sweep", self.run_pass, self.clock, report=self.report, rests=EXACT)

    @staticmethod
    def rest_for(seconds: float | None) -> Callable[[], Awaitable[float | None]]:
        async def work() -> float | None:
            return seconds

        return work

    def report(self, name: str, error: BaseException) -> None:
        self.reports.append((name, error))

    async def run_pass(self) -> float | None:
        self.began.append(self.clock.monotonic())
        return await self.work()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    await rig.loop.stop()


async def test_it_begins_at_once_and_rests_as_long_as_each_pass_says(rig: Rig) -> None:
    rests = iter([10.0, 0.5, 3.0, 1000.0])

    async def work() -> float:
        return next(rests)

    rig.work = work
    rig.loop.start()
    await rig.clock.advance(100)
    assert rig.began == [0, 10, 10.5, 13.5]


async def test_a_pass_that_names_no_rest_gets_the_idle_one(rig: Rig) -> None:
    rig.work = rig.rest_for(None)
    rig.loop.start()
    await rig.clock.advance(15)
    assert rig.began == [0, 7, 14]


async def test_a_pass_with_more_to_do_goes_on_at_once_and_lets_others_run(rig: Rig) -> None:
    rig.work = rig.rest_for(0)
    rig.loop.start()
    turns = 0
    while len(rig.began) < 5:
        turns += 1
        assert turns < 100
        await asyncio.sleep(0)
    assert rig.began[:5] == [0, 0, 0, 0, 0]


async def test_waking_ends_the_rest(rig: Rig) -> None:
    rig.loop.start()
    await rig.clock.advance(4)
    rig.loop.wake()
    await settle()
    assert rig.began == [0, 4]
    await rig.clock.advance(10)
    assert rig.began == [0, 4, 14]


async def test_waking_during_a_pass_skips_the_rest_after_it(rig: Rig) -> None:
    async def slow() -> float:
        await rig.clock.sleep(2)
        return 10

    rig.work = slow
    rig.loop.start()
    await rig.clock.advance(1)
    rig.loop.wake()
    rig.loop.wake()
    await rig.clock.advance(10)
    assert rig.began == [0, 2], "one wake-up, however often called, is one pass more"


async def test_a_failing_pass_is_reported_and_repeated_after_a_growing_rest(rig: Rig) -> None:
    errors = [OSError(str(number)) for number in range(5)]
    pending = iter(errors)

    async def fail() -> float:
        raise next(pending)

    rig.work = fail
    rig.loop.start()
    await rig.clock.advance(14.999)
    assert rig.began == [0, 1, 3, 7, 11], "1, 2, 4, then never above 4"
    assert rig.reports == [("sweep", error) for error in errors]


async def test_a_good_pass_forgets_the_failures_before_it(rig: Rig) -> None:
    script = iter([OSError(), OSError(), None, OSError(), None])

    async def work() -> float:
        error = next(script)
        if error is not None:
            raise error
        return 10

    rig.work = work
    rig.loop.start()
    await rig.clock.advance(15)
    assert rig.began == [0, 1, 3, 13, 14]


async def test_waking_does_not_hammer_a_store_that_is_away(rig: Rig) -> None:
    async def fail() -> float:
        raise OSError

    rig.work = fail
    rig.loop.start()
    for _ in range(10):
        await rig.clock.advance(0.09)
        rig.loop.wake()
    await rig.clock.advance(0.099)
    assert rig.began == [0]
    await rig.clock.advance(0.001)
    assert rig.began == [0, 1]


async def test_a_cancellation_that_escapes_from_the_pass_is_a_failure_like_others(rig: Rig) -> None:
    async def cut() -> float:
        raise asyncio.CancelledError

    rig.work = cut
    rig.loop.start()
    await rig.clock.advance(1)
    assert rig.began == [0, 1]
    assert [type(error) for _, error in rig.reports] == [asyncio.CancelledError] * 2


@pytest.mark.parametrize("resting", ["after a good pass", "after a failure"])
async def test_stopping_ends_a_rest_at_once(rig: Rig, resting: str) -> None:
    async def fail() -> float:
        raise OSError

    rig.work = fail if resting == "after a failure" else rig.work
    rig.loop.start()
    await settle()
    await rig.loop.stop()
    assert (rig.began, rig.clock.monotonic(), rig.clock.timers) == ([0], 0, 0)


async def test_stopping_waits_for_the_pass_under_way(rig: Rig) -> None:
    finished = asyncio.Event()

    async def slow() -> float:
        await rig.clock.sleep(9)
        finished.set()
        return 10

    rig.work = slow
    rig.loop.start()
    await settle()
    stopping = asyncio.create_task(rig.loop.stop(grace_seconds=10))
    await rig.clock.advance(8.999)
    assert not stopping.done()
    await rig.clock.advance(0.001)
    await stopping
    assert finished.is_set()
    assert (rig.began, rig.reports) == ([0], [])


async def test_a_failure_while_stopping_is_reported_and_not_rested_upon(rig: Rig) -> None:
    async def fail_later() -> float:
        await rig.clock.sleep(1)
        raise OSError

    rig.work = fail_later
    rig.loop.start()
    await settle()
    stopping = asyncio.create_task(rig.loop.stop())
    await rig.clock.advance(1)
    assert stopping.done()
    assert [type(error) for _, error in rig.reports] == [OSError]


async def test_a_pass_longer_than_the_grace_is_cut_off_and_reported(rig: Rig) -> None:
    async def endless() -> float:
        await asyncio.Event().wait()
        return 0

    rig.work = endless
    rig.loop.start()
    await settle()
    stopping = asyncio.create_task(rig.loop.stop(grace_seconds=10))
    await rig.clock.advance(10)
    await stopping
    [(name, error)] = rig.reports
    assert name == "sweep"
    assert isinstance(error, TimeoutError)


async def test_it_refuses_a_second_start_and_may_start_again_once_stopped(rig: Rig) -> None:
    rig.loop.start()
    with pytest.raises(RuntimeError, match="sweep"):
        rig.loop.start()
    await settle()
    await rig.loop.stop()
    await rig.loop.stop()
    rig.loop.start()
    await settle()
    assert rig.began == [0, 0]


async def test_what_ended_the_loop_before_its_time_is_raised_on_stopping() -> None:
    def broken_report(name: str, error: BaseException) -> None:
        raise LookupError(name)

    async def fail() -> float:
        raise OSError

    loop = Loop("sweep", fail, VirtualClock(), report=broken_report, rests=EXACT)
    loop.start()
    await settle()
    with pytest.raises(LookupError):
        await loop.stop()


def test_jitter_only_shortens_a_rest() -> None:
    rests = Rests(idle_seconds=10, first_failure_seconds=1, largest_failure_seconds=30, jitter=lambda: 0.999)
    assert 9 <= rests.after_pass(None) < 10
    assert 90 <= rests.after_pass(100) < 100
    assert rests.after_pass(0) == 0
    assert 2 <= rests.after_failure(3) < 4


def test_rests_after_failures_stay_below_the_largest_for_ever() -> None:
    assert EXACT.after_failure(100_000) == 4
