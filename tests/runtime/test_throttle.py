"""Shared work runs one piece at a time, in order, with pauses in proportion to its duration."""

import asyncio

from app.runtime.throttle import Throttle
from tests.virtual_clock import VirtualClock, run_ready_tasks


async def test_pieces_run_one_at_a_time_in_order_with_pauses() -> None:
    clock = VirtualClock()
    share = Throttle(clock, 0.25)
    began: list[tuple[int, float]] = []

    async def piece(number: int) -> None:
        async with share:
            began.append((number, clock.monotonic()))
            await clock.sleep(1)

    pieces = [asyncio.create_task(piece(number)) for number in range(3)]
    await clock.advance(9)
    await asyncio.gather(*pieces)
    assert began == [(0, 0), (1, 4), (2, 8)]


async def test_a_piece_after_a_long_pause_starts_at_once() -> None:
    clock = VirtualClock()
    share = Throttle(clock, 0.5)
    async with share:
        pass
    await clock.advance(10)
    async with share:
        assert clock.monotonic() == 10


async def test_a_cancelled_piece_lets_the_next_one_run() -> None:
    clock = VirtualClock()
    share = Throttle(clock, 0.5)

    async def piece() -> None:
        async with share:
            await clock.sleep(1)

    first, second, third = (asyncio.create_task(piece()) for _ in range(3))
    await run_ready_tasks()
    first.cancel()
    await run_ready_tasks()
    second.cancel()
    await clock.advance(10)
    await asyncio.wait([first, second, third])
    assert (first.cancelled(), second.cancelled(), third.cancelled()) == (True, True, False)


async def test_a_caller_cancelled_in_its_pause_lets_the_next_one_in() -> None:
    clock = VirtualClock()
    throttle = Throttle(clock, 0.5)
    async with throttle:
        await clock.advance(1)

    async def enter() -> None:
        async with throttle:
            pass

    first, second = asyncio.create_task(enter()), asyncio.create_task(enter())
    await run_ready_tasks()
    first.cancel()
    await clock.advance(1)
    await run_ready_tasks()
    assert (first.cancelled(), second.done()) == (True, True)
