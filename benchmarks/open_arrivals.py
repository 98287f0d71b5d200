"""Loads by the clock. With `OpenArrivals`, lifecycles begin at random times, also while earlier ones are under way.

Callers that wait for each answer fall into step with the server, and share more statements than independent clients do.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from benchmarks.load import Connection, Target, lifecycle

MAX_CONNECTIONS = 500
"""Lifecycles that are under way at once. Above it they wait, and that wait counts in their time."""


@dataclass
class OpenArrivals:
    """One round: this many lifecycles over these queues, as a Poisson process of this rate per second.

    `seconds` has the time of each lifecycle of every round, from the moment at which it should have begun. The same seed
    gives the same moments.
    """

    rate: float
    queues: int
    lifecycles: int
    seed: int = 0
    seconds: list[Sequence[float]] = field(default_factory=list[Sequence[float]])
    _idle: list[Connection] = field(default_factory=list[Connection])

    async def __call__(self, _connection: Connection, target: Target) -> int:
        """Run one round. Return the number of messages."""
        random = Random(self.seed + len(self.seconds))
        queues = [replace(target, queue=f"bench.{number}") for number in range(self.queues)]
        slots = asyncio.Semaphore(MAX_CONNECTIONS)
        due = time.monotonic()
        running: list[asyncio.Task[float]] = []
        for _ in range(self.lifecycles):
            due += random.expovariate(self.rate)
            await asyncio.sleep(due - time.monotonic())
            running.append(asyncio.create_task(self._one(random.choice(queues), slots, due)))
        self.seconds.append(await asyncio.gather(*running))
        while self._idle:
            self._idle.pop().close()
        return self.lifecycles

    async def _one(self, target: Target, slots: asyncio.Semaphore, due: float) -> float:
        async with slots:
            connection = self._idle.pop() if self._idle else await target.connect()
            await lifecycle(connection, target)
            self._idle.append(connection)
        return time.monotonic() - due


@dataclass(frozen=True)
class PacedCaller:
    """One round: this many lifecycles of one caller, at even intervals of this rate per second."""

    rate: float
    lifecycles: int

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Run one round. Return the number of messages."""
        due = time.monotonic()
        for _ in range(self.lifecycles):
            due += 1 / self.rate
            await asyncio.sleep(due - time.monotonic())
            await lifecycle(connection, target)
        return self.lifecycles
