"""With any mix of callers, cancellations and failures, no effect happens twice and none goes unreported."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.runtime.coalescer import Coalescer, RequeueEntryError

MAX_BATCH_SIZE = 5
IN_FLIGHT = 2


class StoreUnavailableError(Exception):
    """Fails a whole batch before it has any effect."""


class BadEntryError(Exception):
    """Fails every batch with this entry, before it has any effect."""


@dataclass
class Simulation:
    """A store that fails by a seeded random generator, and all results of its callers."""

    rng: Random
    effects: Counter[int] = field(default_factory=Counter)
    delivered: Counter[int] = field(default_factory=Counter)
    orphaned: Counter[int] = field(default_factory=Counter)
    bad: set[int] = field(default_factory=set)
    unbatchable: set[int] = field(default_factory=set)
    running: int = 0
    max_running: int = 0
    batches: list[list[int]] = field(default_factory=list)

    async def run(self, entries: list[int]) -> list[int | Exception]:
        self.batches.append(entries)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        await self.wait(6)
        self.running -= 1
        if self.rng.random() < 0.1:
            raise StoreUnavailableError
        if self.bad.intersection(entries):
            raise BadEntryError
        left_over = {entry for entry in entries[1:] if entry in self.unbatchable and self.rng.random() < 0.2}
        self.effects.update(entry for entry in entries if entry not in left_over)
        return [RequeueEntryError() if entry in left_over else -entry for entry in entries]

    async def wait(self, most: int) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    def orphan(self, entry: int, outcome: int) -> None:
        assert outcome == -entry
        self.orphaned[entry] += 1


class SimulatedCoalescer(Coalescer[int, int]):
    """Knows the failure of a whole batch."""

    batch_errors = (StoreUnavailableError,)


async def call(simulation: Simulation, coalescer: Coalescer[int, int], entries: list[int]) -> None:
    """One caller: arrives at some moment with one or several entries, and records its results."""
    await simulation.wait(20)
    try:
        if len(entries) == 1:
            outcomes = [await coalescer.submit(entries[0])]
        else:
            outcomes = await coalescer.submit_all(entries)
    except (StoreUnavailableError, BadEntryError):
        return
    assert outcomes == [-entry for entry in entries]
    simulation.delivered.update(entries)


async def run_simulation(simulation: Simulation, sizes: list[int]) -> list[list[int]]:
    coalescer = SimulatedCoalescer(
        simulation.run,
        in_flight=IN_FLIGHT,
        max_batch_size=MAX_BATCH_SIZE,
        on_orphaned=simulation.orphan,
    )
    numbers = iter(range(1, sum(sizes) + 1))
    calls = [[next(numbers) for _ in range(size)] for size in sizes]
    simulation.unbatchable = {entries[0] for entries in calls if len(entries) == 1}
    simulation.bad = {entry for entries in calls for entry in entries if simulation.rng.random() < 0.05}
    tasks = [asyncio.create_task(call(simulation, coalescer, entries)) for entries in calls]
    for task in tasks:
        await simulation.wait(4)
        if simulation.rng.random() < 0.3:
            task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result
    await coalescer.close()
    return calls


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from([1, 1, 1, 2, 3, 8]), min_size=1, max_size=30))
def test_every_effect_happens_once_and_is_returned_or_orphaned_once(seed: int, sizes: list[int]) -> None:
    simulation = Simulation(Random(seed))
    calls = asyncio.run(run_simulation(simulation, sizes))
    assert max(simulation.effects.values(), default=0) <= 1
    assert simulation.delivered + simulation.orphaned == simulation.effects
    assert not simulation.bad & simulation.effects.keys()
    assert simulation.max_running <= IN_FLIGHT
    together = [entries for entries in calls if len(entries) > 1]
    for batch in simulation.batches:
        assert len(batch) <= MAX_BATCH_SIZE or batch in together
        assert all(set(group) <= set(batch) or not set(group) & set(batch) for group in together)
