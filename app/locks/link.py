"""The way to Redis: short patience, a circuit breaker, and None instead of every failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from app.locks.client import Client
from app.locks.lua import Script
from app.runtime.breaker import Breaker, BreakerState
from app.runtime.clock import Clock
from app.runtime.loop import Report

FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 1.0
"""Degraded, every renewal writes SQL; asking once a second whether Redis is back costs next to nothing."""

Command = Sequence[str | bytes | int]

Reply = bytes | int | RedisError | None
"""What a command answered (a script always bytes), how Redis refused it, or None when nothing was heard."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a script: the index of a bucket, then its records, then the arguments."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[int | str] = ()

    @property
    def rest(self) -> list[str | int]:
        """What follows the script in EVAL and EVALSHA."""
        return [len(self.keys), *self.keys, *self.arguments]


class Link:
    """A connection to Redis that several callers share; it never raises for what Redis does or fails to do.

    Whether a call that failed took effect is unknown; every script may be run again or late. What failed is
    reported at most once per cool-down. While `is_open` is false nothing is sent, as if Redis did not answer.
    """

    def __init__(self, client: Client, clock: Clock, report: Report) -> None:
        self.client = client
        self.is_open = True
        self._report = report
        self._clock = clock
        self._breaker = Breaker(clock, failures_to_open=FAILURES_TO_OPEN, cool_down_seconds=COOL_DOWN_SECONDS)
        self._quiet_until = 0.0

    @property
    def is_up(self) -> bool:
        """Whether it is open, and Redis answered when it was last asked or has not yet failed often enough to be given up."""
        return self.is_open and self._breaker.state is BreakerState.CLOSED

    async def run(self, calls: Sequence[Call]) -> list[Reply]:
        """Run scripts in one round trip; the reply to each."""
        asked = [("EVALSHA", call.script.digest, *call.rest) for call in calls]
        replies = await self._ask(asked)
        unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            # A server that was started anew, or another one: EVAL also makes it remember the script.
            taught = await self._ask([("EVAL", calls[place].script.text, *calls[place].rest) for place in unknown])
            for place, reply in zip(unknown, taught, strict=True):
                replies[place] = reply
        return replies

    async def publish(self, messages: Mapping[str, bytes]) -> dict[str, int]:
        """Tell whoever is subscribed, by channel; how many that were, as far as is known. Lost when Redis is away."""
        replies = await self._ask([("PUBLISH", channel, message) for channel, message in messages.items()])
        return {
            channel: reached if isinstance(reached, int) else 0
            for channel, reached in zip(messages, replies, strict=True)
        }

    async def close(self) -> None:
        """Let the connections go."""
        await self.client.aclose()

    async def _ask(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands together; the reply to each."""
        if not self.is_open or not self._breaker.allows():
            return [None] * len(commands)
        try:
            replies = await self._send(commands)
        except (RedisError, OSError) as error:
            self._failed(error)
            return [None] * len(commands)
        refusals = [
            reply for reply in replies if isinstance(reply, RedisError) and not isinstance(reply, NoScriptError)
        ]
        if refusals:
            self._failed(refusals[0])
        else:
            self._breaker.succeeded()
        return replies

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(False)

    def _failed(self, error: BaseException) -> None:
        self._breaker.failed()
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + COOL_DOWN_SECONDS
            self._report("lock store", error)
