"""Regularly runs in Redis what the server needs of it, so that a refusal is noticed even while no lock is renewed."""

import secrets

from app.domain.instant import SECOND
from app.domain.settlement import LockToken
from app.locks.lua_scripts import DROP, EXPIRED_GENERATIONS, PROMISES, RECORD, RENEW, Script
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import BUCKET_SHIFT, BUCKETS, RedisKeys
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays
from app.runtime.clock import Clock

CHECK_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""The interval while Redis refuses something."""

PROMISED_UNTIL = 4_000_000_000 * SECOND
"""Later than any clock: the record is always written."""

ARGUMENTS = {RECORD: (1, SECOND, 0, PROMISED_UNTIL, 0, 0), RENEW: (SECOND, 0, 0), DROP: (1,)}


class RedisCheck:
    """Writes and deletes a record in every bucket, so at every master of a cluster, and publishes on a channel without
    subscribers.

    The connection learns from the replies what Redis refuses. Other scripts run only for requests of receivers. One that was
    refused also runs here, until it succeeds.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys, clock: Clock, report: ErrorReporter) -> None:
        self._connection = connection
        self._keys = keys
        secret = secrets.token_bytes(16)
        self._tokens = [LockToken(bucket << BUCKET_SHIFT, secret) for bucket in range(BUCKETS)]
        self._loop = BackgroundLoop(
            "lock store", self._check, clock, report=report, delays=LoopDelays(idle_seconds=CHECK_SECONDS)
        )

    def start(self) -> None:
        """Start to check repeatedly."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop checking."""
        await self._loop.stop()

    async def _check(self) -> float:
        refused = [
            script for script in (RENEW, PROMISES, EXPIRED_GENERATIONS) if script.name in self._connection.failing
        ]
        for script in (RECORD, *refused, DROP):
            await self._connection.run([self._call(script, bucket) for bucket in range(BUCKETS)])
        await self._connection.publish({self._keys.check_channel(): b""})
        return RETRY_SECONDS if self._connection.failing else CHECK_SECONDS

    def _call(self, script: Script, bucket: int) -> ScriptCall:
        return ScriptCall(
            script, [self._keys.index(bucket), self._keys.record(self._tokens[bucket])], ARGUMENTS.get(script, ())
        )
