"""A budget of bytes: what is held, who is refused, and who waits for room."""

import asyncio

import pytest

from app.runtime.byte_budget import ByteBudget
from tests.clock import settle


class SpentError(Exception):
    """Stands for the refusal of the budget's owner."""


def test_bytes_are_held_up_to_the_most_and_no_further() -> None:
    budget = ByteBudget(10, SpentError)
    budget.take(6)
    with pytest.raises(SpentError):
        budget.take(5)
    budget.take(4)
    budget.give(6)
    assert budget.held == 4


async def test_callers_get_room_in_their_order() -> None:
    budget = ByteBudget(10, SpentError)
    served: list[int] = []

    async def call(size: int, end: asyncio.Event) -> None:
        async with budget.room(size):
            served.append(size)
            await end.wait()

    ends = [asyncio.Event() for _ in range(4)]
    calls = [asyncio.create_task(call(size, end)) for size, end in zip((7, 6, 2, 1), ends, strict=True)]
    await settle()
    assert served == [7], "what is smaller and came later waits too"
    ends[0].set()
    await settle()
    assert (served, budget.held) == ([7, 6, 2, 1], 9)
    for end in ends:
        end.set()
    await asyncio.gather(*calls)
    assert budget.held == 0


async def test_more_than_all_waits_until_nothing_is_held() -> None:
    budget = ByteBudget(10, SpentError)
    budget.take(1)
    waiting = asyncio.ensure_future(budget.wait_for(budget.room(50)._size))
    await settle()
    assert not waiting.done()
    budget.give(1)
    await waiting
    assert budget.held == 10


async def test_a_caller_that_waits_too_long_is_refused_and_holds_nothing() -> None:
    budget = ByteBudget(10, SpentError, patience_seconds=0.01)
    budget.add(20)
    with pytest.raises(SpentError):
        async with budget.room(1):
            pass
    budget.give(20)
    assert budget.held == 0
    async with budget.room(10):
        assert budget.held == 10


async def test_a_caller_that_goes_while_waiting_makes_room_for_the_next() -> None:
    budget = ByteBudget(10, SpentError)
    budget.take(5)
    first = asyncio.create_task(budget.wait_for(8))
    second = asyncio.create_task(budget.wait_for(5))
    await settle()
    assert not second.done()
    first.cancel()
    await settle()
    assert second.done()
    assert budget.held == 10


async def test_a_caller_that_goes_in_the_moment_of_being_served_holds_nothing() -> None:
    budget = ByteBudget(10, SpentError)
    budget.take(10)
    waiting = asyncio.create_task(budget.wait_for(8))
    await settle()
    budget.give(10)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert budget.held == 0
