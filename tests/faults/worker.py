"""A process full of clients: sends so many messages and works on whatever it receives until each of them has ended.

`python -m tests.faults.worker '<JSON of a Load>'`; what it did is in its log, and it fails if a message did not end.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.faults.caller import PAUSE, Caller
from tests.faults.waiting import PATIENCE

OK = 200
WAIT_SECONDS = 2
LARGEST_BODY = 3000

HABITS = {
    "complete": 50,
    "complete twice": 6,
    "renew and complete": 10,
    "renew while completing": 6,
    "abandon": 8,
    "dead_letter": 6,
    "defer": 4,
    "forget": 5,
    "renew and forget": 5,
}
"""What a receiver does with a delivery, and how often among a hundred."""

LONGEST_LEAD_SECONDS = 600
"""The lock store grants no renewal of that length by itself, so that every one writes SQL."""


class Dice(random.Random):
    """Chance, with the habits it chooses among."""

    def __new__(cls, seed: float, without: Sequence[str]) -> Self:
        return super().__new__(cls, seed)

    def __init__(self, seed: float, without: Sequence[str]) -> None:
        super().__init__(seed)
        self._habits = {habit: weight for habit, weight in HABITS.items() if habit not in without}

    def habit(self) -> str:
        """What to do with a delivery."""
        return self.choices([*self._habits], [*self._habits.values()])[0]


@dataclass(frozen=True, slots=True)
class Load:
    """What one process is to do, and which habits its receivers do `without`."""

    name: str
    urls: Sequence[str]
    queue: str
    log: str
    messages: int = 300
    senders: int = 4
    receivers: int = 6
    limit_seconds: float = 4 * PATIENCE
    keep_alive: bool = True
    without: Sequence[str] = ()


@dataclass(slots=True)
class Work:
    """What is still to be sent, and what has been sent and has not ended."""

    to_send: list[str]
    open: set[str] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        """Whether every message was sent and has ended."""
        return not self.to_send and not self.open


async def run(load: Load) -> None:
    """Send and receive until everything has ended. Raises `TimeoutError` where something never does."""
    work = Work([f"{load.name}-{number}" for number in range(load.messages)])
    work.open.update(work.to_send)
    dice = random.Random(load.name)
    async with Caller(load.urls, load.queue, Path(load.log), keep_alive=load.keep_alive) as caller:
        try:
            async with asyncio.timeout(load.limit_seconds), asyncio.TaskGroup() as tasks:
                for _ in range(load.senders):
                    tasks.create_task(_send(caller, work, random.Random(dice.random())))
                for _ in range(load.receivers):
                    tasks.create_task(_receive(caller, work, Dice(dice.random(), load.without)))
        except TimeoutError:
            print(f"these have not ended: {sorted(work.open)}; {len(work.to_send)} were not sent", file=sys.stderr)
            raise


async def _send(caller: Caller, work: Work, dice: random.Random) -> None:
    while work.to_send:
        message_id = work.to_send.pop()
        await caller.send(message_id, dice.randbytes(dice.randrange(LARGEST_BODY)), with_key=dice.random() < 0.5)


async def _receive(caller: Caller, work: Work, dice: Dice) -> None:
    while not work.is_done:
        most = dice.choice((1, 1, 3, 8))
        for message in await caller.receive(with_key=dice.random() < 0.5, max_messages=most, wait_seconds=WAIT_SECONDS):
            if await _treat(caller, message, dice):
                work.open.discard(message["message_id"])


async def _treat(caller: Caller, message: dict[str, Any], dice: Dice) -> bool:
    """Do with a delivery what comes to mind; whether the message has ended."""
    token = message["lock_token"]
    match dice.habit():
        case "complete twice":
            await caller.settle("complete", token)
        case "renew and complete":
            await caller.settle("renew", token)
        case "renew while completing":
            return await _completes_meanwhile(caller, token)
        case "dead_letter":
            return await _ends(caller, "dead_letter", token, reason="set aside")
        case "abandon":
            await caller.settle("abandon", token, reason="not now")
            return False
        case "defer":
            return await _ends(caller, "defer", token) and await _complete_deferred(caller, message["sequence_number"])
        case "forget":
            return False
        case "renew and forget":
            await caller.settle("renew", token)
            return False
        case _:
            pass
    return await _ends(caller, "complete", token)


async def _complete_deferred(caller: Caller, number: int) -> bool:
    """Fetch a deferred message by its number until it comes and is completed; nobody else will."""
    while True:
        for message in await caller.receive(with_key=False, sequence_numbers=[number]):
            if await _ends(caller, "complete", message["lock_token"]):
                return True
        await asyncio.sleep(PAUSE)


async def _completes_meanwhile(caller: Caller, token: str) -> bool:
    """Complete among renewals that go to other servers too, each of which writes SQL; whether the message has ended."""
    await caller.settle("renew", token, lock_seconds=LONGEST_LEAD_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(_ends(caller, "complete", token))
        for _ in range(2):
            tasks.create_task(_renew(caller, token))
    return ending.result()


async def _renew(caller: Caller, token: str) -> None:
    """Renew a few times, as long as there is a lock."""
    for _ in range(4):
        status, _ = await caller.settle("renew", token, lock_seconds=LONGEST_LEAD_SECONDS)
        if status != OK:
            return


async def _ends(caller: Caller, verb: str, token: str, **more: Any) -> bool:
    status, _ = await caller.settle(verb, token, **more)
    return status == OK


if __name__ == "__main__":
    asyncio.run(run(Load(**json.loads(sys.argv[1]))))
