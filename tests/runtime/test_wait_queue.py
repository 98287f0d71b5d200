"""Waiting callers are woken in order, no wake-up is lost, and a close ends all waits."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from app.runtime.wait_queue import Waiter, WaitQueue
from tests.virtual_clock import VirtualClock, run_ready_tasks


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def wait_queue(clock: VirtualClock) -> WaitQueue[str]:
    return WaitQueue(clock)


@pytest.fixture
def three_waiters(wait_queue: WaitQueue[str]) -> Iterator[list[Waiter[str]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(wait_queue.waiter("orders")) for _ in range(3)]


async def waiting_task(waiter: Waiter[str], seconds: float = 60) -> "asyncio.Task[bool]":
    task = asyncio.create_task(waiter.woken(seconds))
    await run_ready_tasks()
    return task


async def are_woken(waiters: list[Waiter[str]]) -> list[bool]:
    return [await waiter.woken(0) for waiter in waiters]


async def test_a_wake_up_goes_to_the_longest_waiter(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    sleepers = [await waiting_task(waiter) for waiter in reversed(three_waiters)]
    wait_queue.wake("orders")
    await run_ready_tasks()
    assert [task.done() for task in sleepers] == [False, False, True], (
        "the first to enter is woken, not the first to sleep"
    )
    wait_queue.close()
    await asyncio.gather(*sleepers)


async def test_a_count_wakes_at_most_that_many_waiters(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    assert wait_queue.wake("orders", 2) == 2
    assert await are_woken(three_waiters) == [True, True, False]
    assert wait_queue.wake("orders", 100) == 3
    assert await are_woken(three_waiters) == [True, True, True]
    assert await are_woken(three_waiters) == [False, False, False], "a count above the number of waiters is forgotten"


async def test_every_waiter_is_woken_once_before_any_is_woken_twice(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    for _ in range(3):
        wait_queue.wake("orders")
    assert await are_woken(three_waiters) == [True, True, True]


async def test_a_wake_up_of_another_key_wakes_no_waiter(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("invoices", 3)
    assert await are_woken(three_waiters) == [False, False, False]


async def test_a_wake_up_during_the_read_is_kept_for_the_next_wait(
    wait_queue: WaitQueue[str], clock: VirtualClock
) -> None:
    with wait_queue.waiter("orders") as waiter:
        wait_queue.wake("orders")
        assert await waiter.woken(60)
        wait_queue.wake("orders")
        assert await waiter.woken(60)
        assert not await waiter.woken(0)
    assert clock.monotonic() == 0


async def test_a_waiter_without_a_wake_up_returns_after_its_timeout(
    wait_queue: WaitQueue[str], clock: VirtualClock
) -> None:
    with wait_queue.waiter("orders") as waiter:
        task = await waiting_task(waiter, 20)
        await clock.advance(19.999)
        assert not task.done()
        await clock.advance(0.001)
        assert await task is False
        wait_queue.wake("orders")
        assert await waiter.woken(0), "after a timeout it is still in the queue"


async def test_a_woken_waiter_leaves_no_timer(wait_queue: WaitQueue[str], clock: VirtualClock) -> None:
    with wait_queue.waiter("orders") as waiter:
        task = await waiting_task(waiter)
        assert clock.timers == 1
        wait_queue.wake("orders")
        assert await task
    assert clock.timers == 0


async def test_a_pending_wake_up_of_a_leaving_waiter_passes_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves, wait_queue.waiter("orders") as stays:
        wait_queue.wake("orders")
        assert not await stays.woken(0)
        with leaves:
            pass
        assert await stays.woken(0)


async def test_a_received_wake_up_that_was_not_consumed_passes_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as stays:
        wait_queue.wake("orders")
        assert await stays.woken(0)
        with wait_queue.waiter("orders") as leaves:
            wait_queue.wake("orders", 2)
            assert await leaves.woken(0)
            assert await stays.woken(0)
        assert await stays.woken(0)


async def test_a_consumed_wake_up_does_not_pass_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as uses:
        wait_queue.wake("orders")
        assert await uses.woken(0)
        stays = wait_queue.waiter("orders").__enter__()
        uses.consume()
    assert not await stays.woken(0)
    wait_queue.leave(stays)


async def test_a_second_wait_consumes_the_wake_up_before(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as second:
        await second.woken(0)
        with wait_queue.waiter("orders") as first:
            wait_queue.wake("orders", 2)
            assert await are_woken([first, second]) == [True, True]
            assert await are_woken([first, second]) == [False, False]
        assert not await second.woken(0)


async def test_consuming_one_wake_up_keeps_a_later_one(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves:
        wait_queue.wake("orders")
        assert await leaves.woken(0)
        wait_queue.wake("orders")
        leaves.consume()
        stays = wait_queue.waiter("orders").__enter__()
    assert await stays.woken(0)
    wait_queue.leave(stays)


async def test_a_wake_up_that_is_passed_on_visits_every_waiter_once(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("orders")
    for position, waiter in enumerate(three_waiters):
        assert await are_woken(three_waiters) == [position == other for other in range(3)]
        waiter.pass_on()
    assert await are_woken(three_waiters) == [False, False, False]


async def test_a_wake_up_is_not_passed_on_to_later_waiters(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    first, second, third = three_waiters
    wait_queue.wake("orders", 2)
    assert await are_woken(three_waiters) == [True, True, False]
    with wait_queue.waiter("orders") as late:
        second.pass_on()
        assert await third.woken(0)
        first.pass_on()
        assert await are_woken([late, *three_waiters]) == [False, False, False, False], "all have read since"


async def test_without_a_received_wake_up_nothing_is_passed_on(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("orders")
    first = three_waiters[0]
    first.pass_on()
    assert await first.woken(0), "it has not been received yet"
    first.consume()
    first.pass_on()
    assert await are_woken(three_waiters) == [False, False, False]


async def test_a_wake_up_that_was_passed_on_does_not_pass_on_again(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves:
        wait_queue.wake("orders")
        assert await leaves.woken(0)
        leaves.pass_on()
        stays = wait_queue.waiter("orders").__enter__()
    assert not await stays.woken(0)
    wait_queue.leave(stays)


async def test_a_waiter_cancelled_while_it_is_woken_passes_its_wake_up_on(wait_queue: WaitQueue[str]) -> None:
    async def wait() -> bool:
        with wait_queue.waiter("orders") as waiter:
            return await waiter.woken(60)

    first = asyncio.create_task(wait())
    await run_ready_tasks()
    with wait_queue.waiter("orders") as second:
        wait_queue.wake("orders")
        first.cancel()
        await run_ready_tasks()
        assert first.cancelled()
        assert await second.woken(0)


async def test_a_woken_waiter_goes_to_the_end_of_the_queue(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as first, wait_queue.waiter("orders") as second:
        wait_queue.wake("orders")
        assert await first.woken(0)
        wait_queue.wake("orders")
        assert await are_woken([first, second]) == [False, True]


def test_wait_keys_are_the_keys_with_waiters(wait_queue: WaitQueue[str]) -> None:
    assert wait_queue.wait_keys() == []
    with wait_queue.waiter("orders"), wait_queue.waiter("orders"), wait_queue.waiter("invoices"):
        assert wait_queue.wait_keys() == ["orders", "invoices"]
        wait_queue.wake("orders", 2)
        assert wait_queue.wait_keys() == ["invoices"], "both are awake already and will read"
    assert wait_queue.wait_keys() == []


async def test_close_ends_all_waits_now_and_later(wait_queue: WaitQueue[str], clock: VirtualClock) -> None:
    assert not wait_queue.closed
    with wait_queue.waiter("orders") as sleeping, wait_queue.waiter("orders") as reading:
        task = await waiting_task(sleeping)
        wait_queue.close()
        assert await task is False
        wait_queue.wake("orders", 2)
        assert await reading.woken(60) is False
        assert wait_queue.closed
    with wait_queue.waiter("orders") as late:
        assert await late.woken(60) is False
    assert (clock.monotonic(), clock.timers) == (0, 0)


async def test_a_thousand_waiters_run_nothing_and_are_woken_one_by_one(
    wait_queue: WaitQueue[str], clock: VirtualClock
) -> None:
    woken: list[int] = []

    async def wait(number: int) -> None:
        with wait_queue.waiter("orders") as waiter:
            if await waiter.woken(60):
                waiter.consume()
                woken.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(1000):
            tasks.create_task(wait(number))
        await run_ready_tasks()
        assert clock.timers == 1000
        await clock.advance(59)
        assert woken == []
        for _ in range(1000):
            wait_queue.wake("orders")
        await run_ready_tasks()
    assert woken == list(range(1000))
    assert (wait_queue.wait_keys(), clock.timers) == ([], 0)
