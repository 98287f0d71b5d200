"""Waiting callers are woken in turn, no ring is lost, and all are let go when waiting is over."""

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


async def test_a_ring_wakes_the_one_who_has_waited_longest(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    sleepers = [await waiting_task(waiter) for waiter in reversed(three_waiters)]
    wait_queue.wake("orders")
    await run_ready_tasks()
    assert [task.done() for task in sleepers] == [False, False, True], "who entered first, not who slept first"
    wait_queue.close()
    await asyncio.gather(*sleepers)


async def test_a_count_wakes_so_many_and_no_more_than_there_are(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    assert wait_queue.wake("orders", 2) == 2
    assert await are_woken(three_waiters) == [True, True, False]
    assert wait_queue.wake("orders", 100) == 3
    assert await are_woken(three_waiters) == [True, True, True]
    assert await are_woken(three_waiters) == [False, False, False], "what exceeded the line is forgotten"


async def test_rings_spread_over_the_line_before_anybody_gets_a_second_one(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    for _ in range(3):
        wait_queue.wake("orders")
    assert await are_woken(three_waiters) == [True, True, True]


async def test_a_key_is_deaf_to_the_rings_of_another(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("invoices", 3)
    assert await are_woken(three_waiters) == [False, False, False]


async def test_a_ring_during_the_look_is_kept_for_the_next_wait(
    wait_queue: WaitQueue[str], clock: VirtualClock
) -> None:
    with wait_queue.waiter("orders") as waiter:
        wait_queue.wake("orders")
        assert await waiter.woken(60)
        wait_queue.wake("orders")
        assert await waiter.woken(60)
        assert not await waiter.woken(0)
    assert clock.monotonic() == 0


async def test_an_unrung_waiter_gives_up_after_its_timeout(wait_queue: WaitQueue[str], clock: VirtualClock) -> None:
    with wait_queue.waiter("orders") as waiter:
        task = await waiting_task(waiter, 20)
        await clock.advance(19.999)
        assert not task.done()
        await clock.advance(0.001)
        assert await task is False
        wait_queue.wake("orders")
        assert await waiter.woken(0), "after a timeout it still stands in line"


async def test_a_woken_waiter_leaves_no_timer(wait_queue: WaitQueue[str], clock: VirtualClock) -> None:
    with wait_queue.waiter("orders") as waiter:
        task = await waiting_task(waiter)
        assert clock.timers == 1
        wait_queue.wake("orders")
        assert await task
    assert clock.timers == 0


async def test_a_ring_the_leaver_never_heard_passes_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves, wait_queue.waiter("orders") as stays:
        wait_queue.wake("orders")
        assert not await stays.woken(0)
        with leaves:
            pass
        assert await stays.woken(0)


async def test_a_ring_heard_but_not_used_passes_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as stays:
        wait_queue.wake("orders")
        assert await stays.woken(0)
        with wait_queue.waiter("orders") as leaves:
            wait_queue.wake("orders", 2)
            assert await leaves.woken(0)
            assert await stays.woken(0)
        assert await stays.woken(0)


async def test_a_used_ring_does_not_pass_on(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as uses:
        wait_queue.wake("orders")
        assert await uses.woken(0)
        stays = wait_queue.waiter("orders").__enter__()
        uses.consume()
    assert not await stays.woken(0)
    wait_queue.leave(stays)


async def test_asking_again_uses_the_ring_before(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as second:
        await second.woken(0)
        with wait_queue.waiter("orders") as first:
            wait_queue.wake("orders", 2)
            assert await are_woken([first, second]) == [True, True]
            assert await are_woken([first, second]) == [False, False]
        assert not await second.woken(0)


async def test_using_one_ring_does_not_use_a_later_one(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves:
        wait_queue.wake("orders")
        assert await leaves.woken(0)
        wait_queue.wake("orders")
        leaves.consume()
        stays = wait_queue.waiter("orders").__enter__()
    assert await stays.woken(0)
    wait_queue.leave(stays)


async def test_a_ring_that_was_of_no_use_goes_once_round(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("orders")
    for place, waiter in enumerate(three_waiters):
        assert await are_woken(three_waiters) == [place == other for other in range(3)]
        waiter.pass_on()
    assert await are_woken(three_waiters) == [False, False, False]


async def test_a_ring_is_not_handed_on_to_who_came_after_it(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    first, second, third = three_waiters
    wait_queue.wake("orders", 2)
    assert await are_woken(three_waiters) == [True, True, False]
    with wait_queue.waiter("orders") as late:
        second.pass_on()
        assert await third.woken(0)
        first.pass_on()
        assert await are_woken([late, *three_waiters]) == [False, False, False, False], "all have looked since"


async def test_without_a_ring_there_is_nothing_to_hand_on(
    wait_queue: WaitQueue[str], three_waiters: list[Waiter[str]]
) -> None:
    wait_queue.wake("orders")
    first = three_waiters[0]
    first.pass_on()
    assert await first.woken(0), "it has not been heard yet"
    first.consume()
    first.pass_on()
    assert await are_woken(three_waiters) == [False, False, False]


async def test_what_was_handed_on_does_not_pass_on_again(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as leaves:
        wait_queue.wake("orders")
        assert await leaves.woken(0)
        leaves.pass_on()
        stays = wait_queue.waiter("orders").__enter__()
    assert not await stays.woken(0)
    wait_queue.leave(stays)


async def test_one_cancelled_in_the_moment_it_is_rung_passes_the_ring_on(wait_queue: WaitQueue[str]) -> None:
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


async def test_one_who_was_rung_queues_up_behind_the_others(wait_queue: WaitQueue[str]) -> None:
    with wait_queue.waiter("orders") as first, wait_queue.waiter("orders") as second:
        wait_queue.wake("orders")
        assert await first.woken(0)
        wait_queue.wake("orders")
        assert await are_woken([first, second]) == [False, True]


def test_waiting_names_the_keys_a_ring_would_reach(wait_queue: WaitQueue[str]) -> None:
    assert wait_queue.wait_keys() == []
    with wait_queue.waiter("orders"), wait_queue.waiter("orders"), wait_queue.waiter("invoices"):
        assert wait_queue.wait_keys() == ["orders", "invoices"]
        wait_queue.wake("orders", 2)
        assert wait_queue.wait_keys() == ["invoices"], "both are awake already and will look"
    assert wait_queue.wait_keys() == []


async def test_closing_lets_everybody_go_and_nobody_wait(wait_queue: WaitQueue[str], clock: VirtualClock) -> None:
    assert not wait_queue.closed
    with wait_queue.waiter("orders") as sleeping, wait_queue.waiter("orders") as looking:
        task = await waiting_task(sleeping)
        wait_queue.close()
        assert await task is False
        wait_queue.wake("orders", 2)
        assert await looking.woken(60) is False
        assert wait_queue.closed
    with wait_queue.waiter("orders") as late:
        assert await late.woken(60) is False
    assert (clock.monotonic(), clock.timers) == (0, 0)


async def test_a_thousand_sleepers_run_nothing_and_are_woken_one_by_one(
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
