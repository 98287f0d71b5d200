"""A loop repeats its pass, waits as the pass says, survives failures and stops gracefully."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.runtime.background_loop import BackgroundLoop, LoopDelays
from tests.virtual_clock import VirtualClock, run_ready_tasks

EXACT_DELAYS = LoopDelays(idle_seconds=7, first_failure_seconds=1, max_failure_seconds=4, jitter=lambda: 0.0)


class LoopHarness:
    """A loop whose passes the test defines. It records when each pass began, and each reported error."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.began: list[float] = []
        self.reports: list[tuple[str, BaseException]] = []
        self.work: Callable[[], Awaitable[float | None]] = self.set_delay(10)
        self.loop = BackgroundLoop("sweep", self.run_pass, self.clock, report=self.report, delays=EXACT_DELAYS)

    @staticmethod
    def set_delay(seconds: float | None) -> Callable[[], Awaitable[float | None]]:
        async def work() -> float | None:
            return seconds

        return work

    def report(self, name: str, error: BaseException) -> None:
        self.reports.append((name, error))

    async def run_pass(self) -> float | None:
        self.began.append(self.clock.monotonic())
        return await self.work()


@pytest.fixture
async def harness() -> AsyncIterator[LoopHarness]:
    harness = LoopHarness()
    yield harness
    await harness.loop.stop()


async def test_a_loop_starts_at_once_and_waits_as_long_as_each_pass_returns(harness: LoopHarness) -> None:
    rests = iter([10.0, 0.5, 3.0, 1000.0])

    async def work() -> float:
        return next(rests)

    harness.work = work
    harness.loop.start()
    await harness.clock.advance(100)
    assert harness.began == [0, 10, 10.5, 13.5]


async def test_a_pass_that_returns_none_gets_the_idle_delay(harness: LoopHarness) -> None:
    harness.work = harness.set_delay(None)
    harness.loop.start()
    await harness.clock.advance(15)
    assert harness.began == [0, 7, 14]


async def test_a_pass_that_returns_zero_repeats_at_once_and_lets_others_run(harness: LoopHarness) -> None:
    harness.work = harness.set_delay(0)
    harness.loop.start()
    turns = 0
    while len(harness.began) < 5:
        turns += 1
        assert turns < 100
        await asyncio.sleep(0)
    assert harness.began[:5] == [0, 0, 0, 0, 0]


async def test_a_wake_up_ends_the_delay(harness: LoopHarness) -> None:
    harness.loop.start()
    await harness.clock.advance(4)
    harness.loop.wake()
    await run_ready_tasks()
    assert harness.began == [0, 4]
    await harness.clock.advance(10)
    assert harness.began == [0, 4, 14]


async def test_a_wake_up_during_a_pass_skips_the_delay_after_it(harness: LoopHarness) -> None:
    async def slow() -> float:
        await harness.clock.sleep(2)
        return 10

    harness.work = slow
    harness.loop.start()
    await harness.clock.advance(1)
    harness.loop.wake()
    harness.loop.wake()
    await harness.clock.advance(10)
    assert harness.began == [0, 2], "several wake-ups during one pass cause one more pass"


async def test_a_failing_pass_is_reported_and_repeated_after_a_growing_delay(harness: LoopHarness) -> None:
    errors = [OSError(str(number)) for number in range(5)]
    pending = iter(errors)

    async def fail() -> float:
        raise next(pending)

    harness.work = fail
    harness.loop.start()
    await harness.clock.advance(14.999)
    assert harness.began == [0, 1, 3, 7, 11], "1, 2, 4, then never above 4"
    assert harness.reports == [("sweep", error) for error in errors]


async def test_a_successful_pass_resets_the_failure_count(harness: LoopHarness) -> None:
    script = iter([OSError(), OSError(), None, OSError(), None])

    async def work() -> float:
        error = next(script)
        if error is not None:
            raise error
        return 10

    harness.work = work
    harness.loop.start()
    await harness.clock.advance(15)
    assert harness.began == [0, 1, 3, 13, 14]


async def test_a_wake_up_does_not_shorten_the_delay_after_a_failure(harness: LoopHarness) -> None:
    async def fail() -> float:
        raise OSError

    harness.work = fail
    harness.loop.start()
    for _ in range(10):
        await harness.clock.advance(0.09)
        harness.loop.wake()
    await harness.clock.advance(0.099)
    assert harness.began == [0]
    await harness.clock.advance(0.001)
    assert harness.began == [0, 1]


async def test_a_cancellation_raised_by_the_pass_is_a_failure(harness: LoopHarness) -> None:
    async def cut() -> float:
        raise asyncio.CancelledError

    harness.work = cut
    harness.loop.start()
    await harness.clock.advance(1)
    assert harness.began == [0, 1]
    assert [type(error) for _, error in harness.reports] == [asyncio.CancelledError] * 2


@pytest.mark.parametrize("resting", ["after a good pass", "after a failure"])
async def test_a_stop_ends_a_delay_at_once(harness: LoopHarness, resting: str) -> None:
    async def fail() -> float:
        raise OSError

    harness.work = fail if resting == "after a failure" else harness.work
    harness.loop.start()
    await run_ready_tasks()
    await harness.loop.stop()
    assert (harness.began, harness.clock.monotonic(), harness.clock.timers) == ([0], 0, 0)


async def test_a_stop_waits_for_the_current_pass(harness: LoopHarness) -> None:
    finished = asyncio.Event()

    async def slow() -> float:
        await harness.clock.sleep(9)
        finished.set()
        return 10

    harness.work = slow
    harness.loop.start()
    await run_ready_tasks()
    stopping = asyncio.create_task(harness.loop.stop(grace_seconds=10))
    await harness.clock.advance(8.999)
    assert not stopping.done()
    await harness.clock.advance(0.001)
    await stopping
    assert finished.is_set()
    assert (harness.began, harness.reports) == ([0], [])


async def test_a_failure_during_a_stop_is_reported_without_a_delay(harness: LoopHarness) -> None:
    async def fail_later() -> float:
        await harness.clock.sleep(1)
        raise OSError

    harness.work = fail_later
    harness.loop.start()
    await run_ready_tasks()
    stopping = asyncio.create_task(harness.loop.stop())
    await harness.clock.advance(1)
    assert stopping.done()
    assert [type(error) for _, error in harness.reports] == [OSError]


async def test_a_pass_longer_than_the_grace_is_cancelled_and_reported(harness: LoopHarness) -> None:
    async def endless() -> float:
        await asyncio.Event().wait()
        return 0

    harness.work = endless
    harness.loop.start()
    await run_ready_tasks()
    stopping = asyncio.create_task(harness.loop.stop(grace_seconds=10))
    await harness.clock.advance(10)
    await stopping
    [(name, error)] = harness.reports
    assert name == "sweep"
    assert isinstance(error, TimeoutError)


async def test_a_running_loop_refuses_a_start_and_a_stopped_one_starts_again(harness: LoopHarness) -> None:
    harness.loop.start()
    with pytest.raises(RuntimeError, match="sweep"):
        harness.loop.start()
    await run_ready_tasks()
    await harness.loop.stop()
    await harness.loop.stop()
    harness.loop.start()
    await run_ready_tasks()
    assert harness.began == [0, 0]


async def test_a_stop_raises_the_error_that_ended_the_loop() -> None:
    def broken_report(name: str, error: BaseException) -> None:
        raise LookupError(name)

    async def fail() -> float:
        raise OSError

    loop = BackgroundLoop("sweep", fail, VirtualClock(), report=broken_report, delays=EXACT_DELAYS)
    loop.start()
    await run_ready_tasks()
    with pytest.raises(LookupError):
        await loop.stop()


def test_jitter_only_shortens_a_delay() -> None:
    rests = LoopDelays(idle_seconds=10, first_failure_seconds=1, max_failure_seconds=30, jitter=lambda: 0.999)
    assert 9 <= rests.after_pass(None) < 10
    assert 90 <= rests.after_pass(100) < 100
    assert rests.after_pass(0) == 0
    assert 2 <= rests.after_failure(3) < 4


def test_the_delay_after_failures_never_exceeds_the_maximum() -> None:
    assert EXACT_DELAYS.after_failure(100_000) == 4
