"""Waiting callers are woken in turn, no ring is lost, and all are let go when waiting is over."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from app.runtime.bell import Bell, Waiter
from tests.clock import VirtualClock, settle


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def bell(clock: VirtualClock) -> Bell[str]:
    return Bell(clock)


@pytest.fixture
def three(bell: Bell[str]) -> Iterator[list[Waiter[str]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(bell.waiter("orders")) for _ in range(3)]


async def asleep(waiter: Waiter[str], seconds: float = 60) -> "asyncio.Task[bool]":
    task = asyncio.create_task(waiter.rung(seconds))
    await settle()
    return task


async def are_rung(waiters: list[Waiter[str]]) -> list[bool]:
    return [await waiter.rung(0) for waiter in waiters]


async def test_a_ring_wakes_the_one_who_has_waited_longest(bell: Bell[str], three: list[Waiter[str]]) -> None:
    sleepers = [await asleep(waiter) for waiter in reversed(three)]
    bell.ring("orders")
    await settle()
    assert [task.done() for task in sleepers] == [False, False, True], "who entered first, not who slept first"
    bell.close()
    await asyncio.gather(*sleepers)


async def test_a_count_wakes_so_many_and_no_more_than_there_are(bell: Bell[str], three: list[Waiter[str]]) -> None:
    assert bell.ring("orders", 2) == 2
    assert await are_rung(three) == [True, True, False]
    assert bell.ring("orders", 100) == 3
    assert await are_rung(three) == [True, True, True]
    assert await are_rung(three) == [False, False, False], "what exceeded the line is forgotten"


async def test_rings_spread_over_the_line_before_anybody_gets_a_second_one(
    bell: Bell[str], three: list[Waiter[str]]
) -> None:
    for _ in range(3):
        bell.ring("orders")
    assert await are_rung(three) == [True, True, True]


async def test_a_key_is_deaf_to_the_rings_of_another(bell: Bell[str], three: list[Waiter[str]]) -> None:
    bell.ring("invoices", 3)
    assert await are_rung(three) == [False, False, False]


async def test_a_ring_during_the_look_is_kept_for_the_next_wait(bell: Bell[str], clock: VirtualClock) -> None:
    with bell.waiter("orders") as waiter:
        bell.ring("orders")
        assert await waiter.rung(60)
        bell.ring("orders")
        assert await waiter.rung(60)
        assert not await waiter.rung(0)
    assert clock.monotonic() == 0


async def test_an_unrung_waiter_gives_up_after_its_timeout(bell: Bell[str], clock: VirtualClock) -> None:
    with bell.waiter("orders") as waiter:
        task = await asleep(waiter, 20)
        await clock.advance(19.999)
        assert not task.done()
        await clock.advance(0.001)
        assert await task is False
        bell.ring("orders")
        assert await waiter.rung(0), "after a timeout it still stands in line"


async def test_a_woken_waiter_leaves_no_timer(bell: Bell[str], clock: VirtualClock) -> None:
    with bell.waiter("orders") as waiter:
        task = await asleep(waiter)
        assert clock.timers == 1
        bell.ring("orders")
        assert await task
    assert clock.timers == 0


async def test_a_ring_the_leaver_never_heard_passes_on(bell: Bell[str]) -> None:
    with bell.waiter("orders") as leaves, bell.waiter("orders") as stays:
        bell.ring("orders")
        assert not await stays.rung(0)
        with leaves:
            pass
        assert await stays.rung(0)


async def test_a_ring_heard_but_not_used_passes_on(bell: Bell[str]) -> None:
    with bell.waiter("orders") as stays:
        bell.ring("orders")
        assert await stays.rung(0)
        with bell.waiter("orders") as leaves:
            bell.ring("orders", 2)
            assert await leaves.rung(0)
            assert await stays.rung(0)
        assert await stays.rung(0)


async def test_a_used_ring_does_not_pass_on(bell: Bell[str]) -> None:
    with bell.waiter("orders") as uses:
        bell.ring("orders")
        assert await uses.rung(0)
        stays = bell.waiter("orders").__enter__()
        uses.used()
    assert not await stays.rung(0)
    bell.leave(stays)


async def test_asking_again_uses_the_ring_before(bell: Bell[str]) -> None:
    with bell.waiter("orders") as second:
        await second.rung(0)
        with bell.waiter("orders") as first:
            bell.ring("orders", 2)
            assert await are_rung([first, second]) == [True, True]
            assert await are_rung([first, second]) == [False, False]
        assert not await second.rung(0)


async def test_using_one_ring_does_not_use_a_later_one(bell: Bell[str]) -> None:
    with bell.waiter("orders") as leaves:
        bell.ring("orders")
        assert await leaves.rung(0)
        bell.ring("orders")
        leaves.used()
        stays = bell.waiter("orders").__enter__()
    assert await stays.rung(0)
    bell.leave(stays)


async def test_a_ring_that_was_of_no_use_goes_once_round(bell: Bell[str], three: list[Waiter[str]]) -> None:
    bell.ring("orders")
    for place, waiter in enumerate(three):
        assert await are_rung(three) == [place == other for other in range(3)]
        waiter.hand_on()
    assert await are_rung(three) == [False, False, False]


async def test_a_ring_is_not_handed_on_to_who_came_after_it(bell: Bell[str], three: list[Waiter[str]]) -> None:
    first, second, third = three
    bell.ring("orders", 2)
    assert await are_rung(three) == [True, True, False]
    with bell.waiter("orders") as late:
        second.hand_on()
        assert await third.rung(0)
        first.hand_on()
        assert await are_rung([late, *three]) == [False, False, False, False], "all have looked since"


async def test_without_a_ring_there_is_nothing_to_hand_on(bell: Bell[str], three: list[Waiter[str]]) -> None:
    bell.ring("orders")
    first = three[0]
    first.hand_on()
    assert await first.rung(0), "it has not been heard yet"
    first.used()
    first.hand_on()
    assert await are_rung(three) == [False, False, False]


async def test_what_was_handed_on_does_not_pass_on_again(bell: Bell[str]) -> None:
    with bell.waiter("orders") as leaves:
        bell.ring("orders")
        assert await leaves.rung(0)
        leaves.hand_on()
        stays = bell.waiter("orders").__enter__()
    assert not await stays.rung(0)
    bell.leave(stays)


async def test_one_cancelled_in_the_moment_it_is_rung_passes_the_ring_on(bell: Bell[str]) -> None:
    async def wait() -> bool:
        with bell.waiter("orders") as waiter:
            return await waiter.rung(60)

    first = asyncio.create_task(wait())
    await settle()
    with bell.waiter("orders") as second:
        bell.ring("orders")
        first.cancel()
        await settle()
        assert first.cancelled()
        assert await second.rung(0)


async def test_one_who_was_rung_queues_up_behind_the_others(bell: Bell[str]) -> None:
    with bell.waiter("orders") as first, bell.waiter("orders") as second:
        bell.ring("orders")
        assert await first.rung(0)
        bell.ring("orders")
        assert await are_rung([first, second]) == [False, True]


def test_waiting_names_the_keys_a_ring_would_reach(bell: Bell[str]) -> None:
    assert bell.waiting() == []
    with bell.waiter("orders"), bell.waiter("orders"), bell.waiter("invoices"):
        assert bell.waiting() == ["orders", "invoices"]
        bell.ring("orders", 2)
        assert bell.waiting() == ["invoices"], "both are awake already and will look"
    assert bell.waiting() == []


async def test_closing_lets_everybody_go_and_nobody_wait(bell: Bell[str], clock: VirtualClock) -> None:
    assert not bell.closed
    with bell.waiter("orders") as sleeping, bell.waiter("orders") as looking:
        task = await asleep(sleeping)
        bell.close()
        assert await task is False
        bell.ring("orders", 2)
        assert await looking.rung(60) is False
        assert bell.closed
    with bell.waiter("orders") as late:
        assert await late.rung(60) is False
    assert (clock.monotonic(), clock.timers) == (0, 0)


async def test_a_thousand_sleepers_run_nothing_and_are_woken_one_by_one(bell: Bell[str], clock: VirtualClock) -> None:
    woken: list[int] = []

    async def wait(number: int) -> None:
        with bell.waiter("orders") as waiter:
            if await waiter.rung(60):
                waiter.used()
                woken.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(1000):
            tasks.create_task(wait(number))
        await settle()
        assert clock.timers == 1000
        await clock.advance(59)
        assert woken == []
        for _ in range(1000):
            bell.ring("orders")
        await settle()
    assert woken == list(range(1000))
    assert (bell.waiting(), clock.timers) == ([], 0)
