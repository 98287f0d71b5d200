"""The way to Redis: short patience, a circuit breaker, and None instead of every failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from app.locks.lua_scripts import Script
from app.locks.redis_client import RedisClient
from app.runtime.background_loop import ErrorReporter
from app.runtime.circuit_breaker import CircuitBreaker, CircuitState
from app.runtime.clock import Clock

FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 1.0
"""Degraded, every renewal writes SQL; asking once a second whether Redis is back costs next to nothing."""

RedisCommand = Sequence[str | bytes | int]

RedisReply = bytes | int | RedisError | None
"""What a command answered (a script always bytes), how Redis refused it, or None when nothing was heard."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One run of a script: the index of a bucket, then its records, then the arguments."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[int | str] = ()

    @property
    def eval_arguments(self) -> list[str | int]:
        """What follows the script in EVAL and EVALSHA."""
        return [len(self.keys), *self.keys, *self.arguments]


class RedisConnection:
    """A connection to Redis that several callers share; it never raises for what Redis does or fails to do.

    Whether a call that failed took effect is unknown; every script may be run again or late. What failed is
    reported at most once per cool-down. While `is_open` is false nothing is sent, as if Redis did not answer.
    """

    def __init__(self, client: RedisClient, clock: Clock, report: ErrorReporter) -> None:
        self.client = client
        self.is_enabled = True
        self._report = report
        self._clock = clock
        self._breaker = CircuitBreaker(clock, failures_to_open=FAILURES_TO_OPEN, cool_down_seconds=COOL_DOWN_SECONDS)
        self._next_report_at = 0.0

    @property
    def is_up(self) -> bool:
        """Whether it is open, and Redis answered when it was last asked or has not yet failed often enough to be given up."""
        return self.is_enabled and self._breaker.state is CircuitState.CLOSED

    async def run(self, calls: Sequence[ScriptCall]) -> list[RedisReply]:
        """Run scripts in one round trip; the reply to each."""
        script_commands = [("EVALSHA", call.script.digest, *call.eval_arguments) for call in calls]
        replies = await self._execute(script_commands)
        missing_scripts = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing_scripts:
            # A server that was started anew, or another one: EVAL also makes it remember the script.
            retried = await self._execute(
                [("EVAL", calls[index].script.text, *calls[index].eval_arguments) for index in missing_scripts]
            )
            for index, reply in zip(missing_scripts, retried, strict=True):
                replies[index] = reply
        return replies

    async def publish(self, messages: Mapping[str, bytes]) -> dict[str, int]:
        """Tell whoever is subscribed, by channel; how many that were, as far as is known. Lost when Redis is away."""
        replies = await self._execute([("PUBLISH", channel, message) for channel, message in messages.items()])
        return {
            channel: reached if isinstance(reached, int) else 0
            for channel, reached in zip(messages, replies, strict=True)
        }

    async def close(self) -> None:
        """Let the connections go."""
        await self.client.aclose()

    async def _execute(self, commands: Sequence[RedisCommand]) -> list[RedisReply]:
        """Send commands together; the reply to each."""
        if not self.is_enabled or not self._breaker.allows():
            return [None] * len(commands)
        try:
            replies = await self._send(commands)
        except (RedisError, OSError) as error:
            self._record_failure(error)
            return [None] * len(commands)
        refusals = [
            reply for reply in replies if isinstance(reply, RedisError) and not isinstance(reply, NoScriptError)
        ]
        if refusals:
            self._record_failure(refusals[0])
        else:
            self._breaker.record_success()
        return replies

    async def _send(self, commands: Sequence[RedisCommand]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(False)

    def _record_failure(self, error: BaseException) -> None:
        self._breaker.record_failure()
        now = self._clock.monotonic()
        if now >= self._next_report_at:
            self._next_report_at = now + COOL_DOWN_SECONDS
            self._report("lock store", error)
