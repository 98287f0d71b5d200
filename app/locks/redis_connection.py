"""A connection to Redis with short timeouts, a circuit breaker, and None in place of every failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis.exceptions import NoScriptError, ResponseError

from app.locks.lua_scripts import Script
from app.locks.redis_client import REDIS_FAILURES, RedisClient, RedisCommand
from app.runtime.background_loop import ErrorReporter
from app.runtime.circuit_breaker import CircuitBreaker, CircuitState
from app.runtime.clock import Clock

FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 1.0
"""While Redis is unavailable every renewal writes SQL. One trial a second costs next to nothing."""

RedisReply = bytes | int | ResponseError | None
"""The reply to a command (bytes for a script), the error of Redis, or None if no reply arrived."""

PUBLISH = "publish"
"""The name of a publish in `RedisConnection.failing`, next to the names of scripts."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of a script. The first key is the index of a bucket, the other keys are its records."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[int | str] = ()

    @property
    def eval_arguments(self) -> list[str | int]:
        """The arguments after the script in EVAL and EVALSHA."""
        return [len(self.keys), *self.keys, *self.arguments]


class RedisConnection:
    """A connection to Redis that several callers share. A failure of Redis never raises.

    Whether a failed call took effect is unknown; every script is safe to run again or late. Failures are reported at most
    once per cool-down. While `is_enabled` is false nothing is sent, as if Redis did not answer.
    """

    def __init__(
        self, client: RedisClient, clock: Clock, report: ErrorReporter, failing: set[str] | None = None
    ) -> None:
        self.client = client
        self.is_enabled = True
        self.failing: set[str] = set() if failing is None else failing
        """The names of scripts, and of other work, whose last run Redis refused. Connections may share this set."""
        self._report = report
        self._clock = clock
        self._breaker = CircuitBreaker(clock, failures_to_open=FAILURES_TO_OPEN, cool_down_seconds=COOL_DOWN_SECONDS)
        self._next_report_at = 0.0

    @property
    def is_up(self) -> bool:
        """Whether the connection is enabled and its circuit breaker is closed."""
        return self.is_enabled and self._breaker.state is CircuitState.CLOSED

    async def run(self, calls: Sequence[ScriptCall]) -> list[RedisReply]:
        """Run scripts in one round trip, and return the reply to each."""
        names = [call.script.name for call in calls]
        replies = await self._execute(names, [("EVALSHA", call.script.digest, *call.eval_arguments) for call in calls])
        missing_scripts = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing_scripts:
            # A restarted server, or another one: EVAL also caches the script there.
            retried = await self._execute(
                [names[index] for index in missing_scripts],
                [("EVAL", calls[index].script.text, *calls[index].eval_arguments) for index in missing_scripts],
            )
            for index, reply in zip(missing_scripts, retried, strict=True):
                replies[index] = reply
        return replies

    async def publish(self, messages: Mapping[str, bytes]) -> dict[str, int]:
        """Publish a message on each channel. Return the number of subscribers reached, 0 if unknown.

        A cluster counts only those of one node. The messages are lost while Redis is unavailable.
        """
        replies = await self._execute(
            [PUBLISH] * len(messages), [("PUBLISH", channel, message) for channel, message in messages.items()]
        )
        return {
            channel: reached if isinstance(reached, int) else 0
            for channel, reached in zip(messages, replies, strict=True)
        }

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def _execute(self, names: Sequence[str], commands: Sequence[RedisCommand]) -> list[RedisReply]:
        """Send commands together, and return the reply to each. `names` has the name of each in `failing`."""
        if not self.is_enabled or not self._breaker.allows():
            return [None] * len(commands)
        try:
            replies = await self.client.execute(commands)
        except REDIS_FAILURES as error:
            self._record_failure(error)
            return [None] * len(commands)
        self.failing.difference_update(names)
        self.failing.update(name for name, reply in zip(names, replies, strict=True) if _is_refusal(reply))
        failures = [reply for reply in replies if isinstance(reply, Exception) and not isinstance(reply, NoScriptError)]
        if failures:
            self._record_failure(failures[0])
        else:
            self._breaker.record_success()
        return [reply if isinstance(reply, bytes | int | ResponseError) else None for reply in replies]

    def _record_failure(self, error: BaseException) -> None:
        self._breaker.record_failure()
        now = self._clock.monotonic()
        if now >= self._next_report_at:
            self._next_report_at = now + COOL_DOWN_SECONDS
            self._report("lock store", error)


def _is_refusal(reply: object) -> bool:
    return isinstance(reply, ResponseError) and not isinstance(reply, NoScriptError)
