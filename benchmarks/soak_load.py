"""The load of a soak: callers at a steady rate that settle in every way, and an account of every message."""

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.load import SEND_BODY, Connection, Target

ACTIONS = ("complete", "renew", "abandon", "dead-letter", "defer", "leave")
ACTION_WEIGHTS = (88, 4, 3, 2, 1, 2)
"""The percentage of messages settled in each way. `leave` lets the lock expire; `renew` renews it and then completes."""

LOST_LOCK = 410


@dataclass
class MessageLog:
    """The responses that callers got, by sequence number. The load keeps this data per message; a server does not."""

    accepted: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    seen_again: int = 0
    lost_locks: int = 0
    requests: list[float] = field(default_factory=list)

    def unaccounted(self, there: set[int]) -> int:
        """Messages lost, left over, or delivered after their completion; 0 if accepted = completed + remaining."""
        return len((self.accepted - self.completed) ^ there) + self.seen_again


class SoakClient:
    """Sends one message a turn, and settles up to two, so that it also completes redelivered messages."""

    def __init__(self, connection: Connection, target: Target, message_log: MessageLog, rng: Random) -> None:
        self._connection = connection
        self._target = target
        self._log = message_log
        self._rng = rng

    async def run_once(self) -> None:
        """One send, one receive, and a settlement for each message received."""
        status, answer = await self._post("messages", SEND_BODY)
        _expect(status, 201, answer)
        self._log.accepted.add(json.loads(answer)["sequence_number"])
        status, answer = await self._post("messages/receive", b'{"max_messages": 2}')
        _expect(status, 200, answer)
        for message in json.loads(answer)["messages"]:
            self._log.seen_again += message["sequence_number"] in self._log.completed
            await self._settle(message["sequence_number"], message["lock_token"])

    async def _settle(self, number: int, token: str) -> None:
        (action,) = self._rng.choices(ACTIONS, ACTION_WEIGHTS)
        if action == "leave":
            return
        if action == "renew" and await self._try_settle(token, "renew"):
            action = "complete"
        if await self._try_settle(token, action) and action == "complete":
            self._log.completed.add(number)

    async def _try_settle(self, token: str, verb: str) -> bool:
        """Run the verb. Return false if the lock had expired, which a slow machine can cause."""
        status, answer = await self._post(f"locks/{token}/{verb}", b"")
        if status == LOST_LOCK:
            self._log.lost_locks += 1
            return False
        _expect(status, 200, answer)
        return True

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        began = time.monotonic()
        answered = await self._connection.call("POST", self._target.path(path), body)
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


def _expect(status: int, wanted: int, answer: bytes) -> None:
    if status != wanted:
        raise RuntimeError(f"answered {status} instead of {wanted}: {answer[:300].decode(errors='replace')}")
