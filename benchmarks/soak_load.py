"""The load of a soak: callers at a steady rate that settle in every way, and an account of every message."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple

LOCK_SECONDS = 10
"""How long the queue of the soak locks a message."""

Steps = tuple[str, ...]
"""What a client asks of a delivery, one request after another. Without any, the lock expires."""


@dataclass
class MessageLog:
    """The responses that callers got, by sequence number. The load keeps this data per message; a server does not."""

    accepted: dict[int, str] = field(default_factory=dict)
    """The interface that each message was sent through."""
    completed: dict[int, str] = field(default_factory=dict)
    """The interface that each message was completed through."""
    seen_again: int = 0
    lost_locks: int = 0
    requests: list[float] = field(default_factory=list)

    def unaccounted(self, there: set[int]) -> int:
        """Messages lost, left over, or delivered after their completion; 0 if accepted = completed + remaining."""
        return len((self.accepted.keys() - self.completed.keys()) ^ there) + self.seen_again

    def crossed(self, sender: str, receiver: str) -> int:
        """Messages that were sent through one interface and completed through another."""
        return sum(self.accepted.get(number) == sender for number, name in self.completed.items() if name == receiver)


class Delivery(NamedTuple):
    """A message that a client has received, and the token of its lock."""

    number: int
    token: str


class SoakClient(ABC):
    """Sends one message a turn, and settles up to two, so that it also completes redelivered messages.

    Each interface is a class of its own.
    """

    interface: ClassVar[str]
    ways: ClassVar[Mapping[Steps, int]]
    """The percentage of deliveries that end in each way."""
    completion: ClassVar[str]
    """The step after which a message must not be delivered again."""

    def __init__(self, message_log: MessageLog, rng: Random) -> None:
        self._log = message_log
        self._rng = rng

    async def run_once(self) -> None:
        """One send, one receive, and a settlement for each message received."""
        await self.send_one()
        await self.receive_and_settle()

    async def send_one(self) -> None:
        """Send a message."""
        self._log.accepted[await self._send()] = self.interface

    async def receive_and_settle(self) -> None:
        """Receive up to two messages and settle each in a random way."""
        for delivery in await self.receive():
            (steps,) = self._rng.choices([*self.ways], [*self.ways.values()])
            await self.settle(delivery, steps)

    async def receive(self) -> Sequence[Delivery]:
        """Receive up to two messages, and count those that were completed before."""
        deliveries = await self._receive()
        self._log.seen_again += sum(delivery.number in self._log.completed for delivery in deliveries)
        return deliveries

    async def settle(self, delivery: Delivery, steps: Steps) -> None:
        """Ask for these steps until one finds the lock lost."""
        for step in steps:
            if not await self._take(step, delivery.token):
                self._log.lost_locks += 1
                return
            if step == self.completion:
                self._log.completed[delivery.number] = self.interface

    @abstractmethod
    async def _send(self) -> int:
        """Send a message and return its sequence number."""

    @abstractmethod
    async def _receive(self) -> Sequence[Delivery]:
        """Receive up to two messages without waiting."""

    @abstractmethod
    async def _take(self, step: str, token: str) -> bool:
        """Ask for one step. Return false if the lock had expired, which a slow machine can cause."""

    async def _timed(self, request: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
        began = time.monotonic()
        answered = await request
        self._log.requests.append(time.monotonic() - began)
        return answered


async def run_at_rate(callers: Sequence[SoakClient], turns_per_second: float, seconds: float) -> None:
    """Start a turn of all callers together, several times a second; a caller that falls behind skips turns.

    All start together, because the number of requests that share a statement determines the cost of each, and must not
    depend on the load of the machine.
    """
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(_repeat(caller, began, 1 / turns_per_second, began + seconds))


async def _repeat(caller: SoakClient, turn_at: float, interval: float, ending: float) -> None:
    while turn_at < ending:
        await asyncio.sleep(turn_at - time.monotonic())
        await caller.run_once()
        turn_at += interval * max(1, math.ceil((time.monotonic() - turn_at) / interval))
