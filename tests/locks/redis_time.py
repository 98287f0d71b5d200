"""A connection to a real Redis whose scripts read the time of a test."""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from hashlib import sha1

from app.domain.instant import SECOND, Instant
from app.locks.lua_scripts import Script
from app.locks.redis_client import RedisClient
from app.locks.redis_connection import RedisConnection, RedisReply, ScriptCall
from app.runtime.background_loop import ErrorReporter
from app.runtime.clock import Clock

READ_TIME = "redis.call('TIME')"


class Answers(Enum):
    """What becomes of calls: all are answered, their answers are lost, or they do not arrive."""

    ALL = "all"
    LOST = "lost"
    NONE = "none"


class RedisTime:
    """The time that scripts read; a test moves it, and lets answers get lost."""

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.answers = Answers.ALL
        self.most_bytes = 0
        """The bytes of the longest argument."""

    def connection(self, client: RedisClient, clock: Clock, report: ErrorReporter) -> RedisConnection:
        """Return a connection to a Redis that has this time."""
        return _MovedConnection(self, client, clock, report)

    def moved(self, script: Script) -> Script:
        """Return the script with this time."""
        assert READ_TIME in script.text
        seconds, micros = divmod(self.now, SECOND)
        text = script.text.replace(READ_TIME, f"{{ {seconds}, {micros} }}")
        return Script(script.name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class _MovedConnection(RedisConnection):
    def __init__(self, time: RedisTime, client: RedisClient, clock: Clock, report: ErrorReporter) -> None:
        super().__init__(client, clock, report)
        self._time = time

    async def run(self, calls: Sequence[ScriptCall]) -> list[RedisReply]:
        """See `RedisConnection`."""
        for call in calls:
            self._time.most_bytes = max(self._time.most_bytes, *(len(str(argument)) for argument in call.arguments))
        nothing: list[RedisReply] = [None] * len(calls)
        if self._time.answers is Answers.NONE:
            return nothing
        replies = await super().run([replace(call, script=self._time.moved(call.script)) for call in calls])
        return replies if self._time.answers is Answers.ALL else nothing
