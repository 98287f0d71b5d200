"""Reserves a prefix of Redis keys for one broker.

A broker is the processes of one database, and has that database's identity. Two brokers under one prefix would drop each
other's lock records, which delays redeliveries, and wake each other's receivers. So the prefix belongs to the broker that
took it, until a day after its last process has ended. A process of another broker refuses to start. If Redis was unavailable at
its start, it runs, and works without Redis once Redis shows the other owner.
"""

from app.locks.lua_scripts import ACQUIRE_PREFIX
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import RedisKeys
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays
from app.runtime.clock import Clock

OWNERSHIP_SECONDS = 86_400
"""How long a prefix stays with a broker that has stopped checking: longer than the life of any lock record."""

CHECK_SECONDS = 5.0
"""How often each process checks, so that it takes the prefix again soon after Redis was emptied."""

RETRY_SECONDS = 1.0
"""The same while the process works without Redis."""


class PrefixInUse(Exception):
    """Another broker has the prefix. The text is written for the operator."""

    def __init__(self, keys: RedisKeys) -> None:
        super().__init__(
            f"Another broker, with another database, uses Redis under the prefix {keys.prefix!r}. Give each broker a "
            "PEEKLOCK_REDIS_PREFIX of its own. If the other one is gone for good, delete the key "
            f"{keys.owner()!r} in Redis, or wait a day."
        )


async def acquire(connection: RedisConnection, keys: RedisKeys, broker_id: str) -> bool:
    """Take the prefix for a broker. Return whether Redis has answered. Refuses with `PrefixInUse`."""
    (reply,) = await connection.run([ScriptCall(ACQUIRE_PREFIX, [keys.owner()], [broker_id, OWNERSHIP_SECONDS])])
    if not isinstance(reply, bytes):
        return False
    if reply.decode() != broker_id:
        raise PrefixInUse(keys)
    return True


class PrefixOwnership:
    """Takes the prefix, and keeps it while the process runs.

    It has a connection of its own. `guarded_connection` serves everything else. It is disabled until this broker is known
    to have the prefix, and while another broker has it.
    """

    def __init__(
        self,
        connection: RedisConnection,
        guarded_connection: RedisConnection,
        keys: RedisKeys,
        broker_id: str,
        clock: Clock,
        report: ErrorReporter,
    ) -> None:
        self._connection = connection
        self._guarded_connection = guarded_connection
        self._keys = keys
        self._broker = broker_id
        self._report = report
        self._was_refused = False
        self._loop = BackgroundLoop(
            "lock store", self._check, clock, report=report, delays=LoopDelays(idle_seconds=CHECK_SECONDS)
        )
        guarded_connection.is_enabled = False

    async def acquire(self) -> None:
        """Check once. Refuses with `PrefixInUse`. If Redis does not answer, nothing changes."""
        try:
            if await acquire(self._connection, self._keys, self._broker):
                self._guarded_connection.is_enabled = True
        except PrefixInUse:
            self._guarded_connection.is_enabled = False
            raise

    def start(self) -> None:
        """Start to check repeatedly."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop checking. The prefix stays with the broker, whose other processes may still run."""
        await self._loop.stop()

    async def _check(self) -> float:
        try:
            await self.acquire()
        except PrefixInUse as error:
            if not self._was_refused:
                self._report("lock store", error)
            self._was_refused = True
        else:
            self._was_refused = False
        return CHECK_SECONDS if self._guarded_connection.is_enabled else RETRY_SECONDS
