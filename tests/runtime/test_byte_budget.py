"""A budget of bytes: how many are held, which callers are refused, and which wait."""

import asyncio

import pytest

from app.runtime.byte_budget import ByteBudget
from tests.virtual_clock import run_ready_tasks


class BudgetExceededError(Exception):
    """The refusal of the budget's owner."""


def test_bytes_are_held_up_to_the_limit() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(6)
    with pytest.raises(BudgetExceededError):
        budget.acquire(5)
    budget.acquire(4)
    budget.release(6)
    assert budget.held == 4


async def test_callers_are_served_in_order_of_arrival() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    served: list[int] = []

    async def call(size: int, end: asyncio.Event) -> None:
        async with budget.reserve(size):
            served.append(size)
            await end.wait()

    ends = [asyncio.Event() for _ in range(4)]
    calls = [asyncio.create_task(call(size, end)) for size, end in zip((7, 6, 2, 1), ends, strict=True)]
    await run_ready_tasks()
    assert served == [7], "a smaller, later caller waits too"
    ends[0].set()
    await run_ready_tasks()
    assert (served, budget.held) == ([7, 6, 2, 1], 9)
    for end in ends:
        end.set()
    await asyncio.gather(*calls)
    assert budget.held == 0


async def test_bytes_released_beside_a_cancellation_go_to_the_next_caller() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(10)
    first, second = [asyncio.ensure_future(budget.wait_and_acquire(10)) for _ in range(2)]
    await run_ready_tasks()
    first.cancel()
    budget.release(10)
    await second
    assert (first.cancelled(), budget.held) == (True, 10)


async def test_more_bytes_than_the_limit_wait_until_nothing_is_held() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(1)
    waiting = asyncio.ensure_future(budget.wait_and_acquire(budget.reserve(50)._size))
    await run_ready_tasks()
    assert not waiting.done()
    budget.release(1)
    await waiting
    assert budget.held == 10


async def test_a_caller_that_waits_too_long_is_refused_and_holds_nothing() -> None:
    budget = ByteBudget(10, BudgetExceededError, timeout_seconds=0.01)
    budget.acquire_unchecked(20)
    with pytest.raises(BudgetExceededError):
        async with budget.reserve(1):
            pass
    budget.release(20)
    assert budget.held == 0
    async with budget.reserve(10):
        assert budget.held == 10


async def test_a_cancelled_waiter_lets_the_next_caller_in() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(5)
    first = asyncio.create_task(budget.wait_and_acquire(8))
    second = asyncio.create_task(budget.wait_and_acquire(5))
    await run_ready_tasks()
    assert not second.done()
    first.cancel()
    await run_ready_tasks()
    assert second.done()
    assert budget.held == 10


async def test_a_caller_cancelled_while_it_is_served_holds_nothing() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(10)
    waiting = asyncio.create_task(budget.wait_and_acquire(8))
    await run_ready_tasks()
    budget.release(10)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert budget.held == 0


async def test_a_reservation_that_grows_holds_the_most_that_it_was_asked_for() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    async with budget.reserve_more() as held:
        assert budget.held == 0
        for size, expected in ((4, 4), (3, 4), (7, 7), (20, 10)):
            await held.grow(size)
            assert budget.held == expected
    assert budget.held == 0


async def test_a_reservation_that_grows_waits_for_free_bytes() -> None:
    budget = ByteBudget(10, BudgetExceededError)
    budget.acquire(8)
    async with budget.reserve_more() as held:
        growing = asyncio.ensure_future(held.grow(5))
        await run_ready_tasks()
        assert not growing.done()
        budget.release(8)
        await growing
        assert budget.held == 5
    assert budget.held == 0
