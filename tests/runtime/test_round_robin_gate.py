"""Many callers share the event loop with others: one of them does a step in each iteration."""

import asyncio

from app.runtime.round_robin_gate import RoundRobinGate
from tests.virtual_clock import run_ready_tasks


async def test_callers_take_turns_and_do_one_step_in_an_iteration() -> None:
    gate, iterations = RoundRobinGate(), 0
    steps: list[tuple[int, str]] = []

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async def work(name: str) -> None:
        for _ in range(3):
            await gate.enter()
            steps.append((iterations, name))

    counting = asyncio.create_task(count_iterations())
    await asyncio.gather(*map(work, "abc"))
    counting.cancel()
    assert [name for _, name in steps] == ["a", "b", "c"] * 3
    assert len({iteration for iteration, _ in steps}) == len(steps)


async def test_a_caller_that_leaves_lets_the_next_one_pass() -> None:
    gate = RoundRobinGate()
    first, second, third = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    await run_ready_tasks()
    assert third.done()
    assert not third.cancelled()
