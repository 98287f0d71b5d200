"""The two clocks: the machine's, and the virtual one of the tests."""

import asyncio
import time

import pytest

from app.runtime.clock import Clock, Signal, SystemClock, wait_for
from tests.virtual_clock import VirtualClock, run_ready_tasks


def test_the_system_clock_counts_microseconds_since_1970() -> None:
    before = time.time()
    now = SystemClock().now()
    assert before - 0.001 <= now / 1_000_000 <= time.time() + 0.001


async def test_the_system_clock_runs_a_timer_unless_cancelled() -> None:
    clock: Clock = SystemClock()
    ran: list[str] = []
    done = asyncio.Event()
    clock.call_later(0, lambda: ran.append("cancelled")).cancel()
    clock.call_later(0, lambda: (ran.append("kept"), done.set()))
    await done.wait()
    await clock.sleep(0)
    assert ran == ["kept"]
    assert clock.monotonic() <= clock.monotonic()


async def test_virtual_sleepers_wake_in_the_order_of_their_due_times() -> None:
    clock: Clock = (virtual := VirtualClock(now=0))
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("slow", 3.0), ("quick", 1.0), ("also quick", 1.0)):
            tasks.create_task(sleeper(name, seconds))
        await virtual.advance(2.9)
        assert woken == [("quick", 1.0), ("also quick", 1.0), ("quick", 2.0), ("also quick", 2.0)]
        await virtual.advance(3.1)
    assert woken[4:] == [("slow", 3.0), ("slow", 6.0)]
    assert virtual.now() == 6_000_000


async def test_a_cancelled_virtual_sleep_leaves_no_timer() -> None:
    clock = VirtualClock()
    sleeping = asyncio.create_task(clock.sleep(5))
    await run_ready_tasks()
    assert clock.timers == 1
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.timers == 0


async def test_a_signal_ends_its_wait_and_its_timer() -> None:
    clock = VirtualClock()
    signal = Signal(clock)
    waiting = asyncio.create_task(signal.wait(10))
    await run_ready_tasks()
    signal.fire()
    signal.fire()
    await waiting
    assert (clock.monotonic(), clock.timers) == (0, 0)


async def test_a_signal_returns_after_its_timeout() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(Signal(clock).wait(10))
    await clock.advance(9.999)
    assert not waiting.done()
    await clock.advance(0.001)
    assert waiting.done()


async def test_a_signal_without_a_waiter_is_not_kept() -> None:
    clock = VirtualClock()
    signal = Signal(clock)
    signal.fire()
    waiting = asyncio.create_task(signal.wait(10))
    await clock.advance(9)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()


# ---- work with a timeout ---------------------------------------------------------------------------------------------


async def test_work_that_ends_in_time_is_answered_and_leaves_no_timer() -> None:
    clock = VirtualClock()
    working = asyncio.create_task(wait_for(clock.sleep(1), clock, 2))
    await clock.advance(1)
    assert working.done()
    await working
    assert clock.timers == 0


async def test_an_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await wait_for(fail(), VirtualClock(), 2)


async def test_work_that_exceeds_its_timeout_is_cancelled() -> None:
    clock = VirtualClock()
    work = asyncio.create_task(asyncio.Event().wait())
    working = asyncio.create_task(wait_for(work, clock, 2))
    await clock.advance(1.9)
    assert not working.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await working
    assert work.cancelled()


async def test_work_is_cancelled_with_its_caller() -> None:
    clock = VirtualClock()
    work = asyncio.create_task(asyncio.Event().wait())
    working = asyncio.create_task(wait_for(work, clock, 2))
    await run_ready_tasks()
    working.cancel()
    await run_ready_tasks()
    assert working.cancelled()
    assert work.cancelled()
    assert clock.timers == 0
