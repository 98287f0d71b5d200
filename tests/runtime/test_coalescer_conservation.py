"""Whatever callers, cancellations and failures come together: no effect is doubled, and none goes unheard."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.runtime.coalescer import Coalescer, LeftOverError

LARGEST = 5
IN_FLIGHT = 2


class StoreAwayError(Exception):
    """Fails a whole batch before it has any effect."""


class BadEntryError(Exception):
    """Fails whatever batch the entry is in, before it has any effect."""


@dataclass
class World:
    """A store that misbehaves by a seeded die, and everything that its callers were told."""

    die: Random
    effects: Counter[int] = field(default_factory=Counter)
    heard: Counter[int] = field(default_factory=Counter)
    orphaned: Counter[int] = field(default_factory=Counter)
    bad: set[int] = field(default_factory=set)
    single: set[int] = field(default_factory=set)
    under_way: int = 0
    most_under_way: int = 0
    batches: list[list[int]] = field(default_factory=list)

    async def run(self, entries: list[int]) -> list[int | Exception]:
        self.batches.append(entries)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.wait(6)
        self.under_way -= 1
        if self.die.random() < 0.1:
            raise StoreAwayError
        if self.bad.intersection(entries):
            raise BadEntryError
        left_over = {entry for entry in entries[1:] if entry in self.single and self.die.random() < 0.2}
        self.effects.update(entry for entry in entries if entry not in left_over)
        return [LeftOverError() if entry in left_over else -entry for entry in entries]

    async def wait(self, most: int) -> None:
        for _ in range(self.die.randrange(most)):
            await asyncio.sleep(0)

    def orphan(self, entry: int, outcome: int) -> None:
        assert outcome == -entry
        self.orphaned[entry] += 1


async def call(world: World, coalescer: Coalescer[int, int], entries: list[int]) -> None:
    """One caller: comes at some moment, alone or with several entries, and notes what it hears."""
    await world.wait(20)
    try:
        if len(entries) == 1:
            outcomes = [await coalescer.submit(entries[0])]
        else:
            outcomes = await coalescer.submit_together(entries)
    except (StoreAwayError, BadEntryError):
        return
    assert outcomes == [-entry for entry in entries]
    world.heard.update(entries)


async def live(world: World, sizes: list[int]) -> list[list[int]]:
    coalescer: Coalescer[int, int] = Coalescer(
        world.run, in_flight=IN_FLIGHT, largest=LARGEST, shared=(StoreAwayError,), orphaned=world.orphan
    )
    numbers = iter(range(1, sum(sizes) + 1))
    calls = [[next(numbers) for _ in range(size)] for size in sizes]
    world.single = {entries[0] for entries in calls if len(entries) == 1}
    world.bad = {entry for entries in calls for entry in entries if world.die.random() < 0.05}
    tasks = [asyncio.create_task(call(world, coalescer, entries)) for entries in calls]
    for task in tasks:
        await world.wait(4)
        if world.die.random() < 0.3:
            task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result
    await coalescer.close()
    return calls


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from([1, 1, 1, 2, 3, 8]), min_size=1, max_size=30))
def test_every_effect_happens_once_and_is_heard_once_or_orphaned_once(seed: int, sizes: list[int]) -> None:
    world = World(Random(seed))
    calls = asyncio.run(live(world, sizes))
    assert max(world.effects.values(), default=0) <= 1
    assert world.heard + world.orphaned == world.effects
    assert not world.bad & world.effects.keys()
    assert world.most_under_way <= IN_FLIGHT
    together = [entries for entries in calls if len(entries) > 1]
    for batch in world.batches:
        assert len(batch) <= LARGEST or batch in together
        assert all(set(group) <= set(batch) or not set(group) & set(batch) for group in together)
