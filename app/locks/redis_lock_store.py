"""The lock store in Redis, shared by all processes. Deadlines of records follow the clock of Redis alone."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from app.broker.ports.lock_store import LockRecord, NotRenewed, QueueVersion, Renewed
from app.domain.explanation import RecordedPromise
from app.domain.instant import Duration, Instant
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken
from app.locks.lua_scripts import DROP, EXPIRED, EXPIRED_GENERATIONS, PROMISES, RECORD, RENEW, Script
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import BUCKETS, RedisKeys, bucket_of
from app.runtime.coalescer import Coalescer

IN_FLIGHT = 2
MAX_BATCH_SIZE = 256

UNREACHABLE = NotRenewed(asked_at=None, expired_generation=NO_EXPIRED_GENERATION)


@dataclass(frozen=True, slots=True)
class LockCommand:
    """A script to run for one record."""

    script: Script
    token: LockToken
    arguments: tuple[int, ...] = ()


RecordResult = tuple[int, ...] | None
"""The numbers that a script returns for one record, if any; None if Redis did not answer."""


class RedisLockStore:
    """Implements `LockStore`. Calls that arrive during a round trip share the next one.

    Crash window: a record whose process died, or whose reply was lost, only delays a redelivery until Redis expires it.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._commands = Coalescer[LockCommand, RecordResult](
            self._run, in_flight=IN_FLIGHT, max_batch_size=MAX_BATCH_SIZE
        )

    @property
    def is_shared(self) -> bool:
        """Whether renewals may rely on Redis now: it answers, and it accepted the last record."""
        return self._connection.is_up and RECORD.name not in self._connection.failing

    @property
    def state(self) -> str:
        """`ok`, or `degraded` while Redis fails or refuses anything: it is full, is a replica, or a right is missing."""
        return "ok" if self._connection.is_up and not self._connection.failing else "degraded"

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> Renewed | NotRenewed:
        """Prolong a lock with a live record inside its bound; otherwise return its expired generation, if any."""
        arguments = (duration, queue_version.queue_id, queue_version.version)
        result = await self._commands.submit(LockCommand(RENEW, token, arguments))
        if result is None:
            return UNREACHABLE
        now, granted, expired_generation = result
        return Renewed(granted, duration) if granted else NotRenewed(now, expired_generation)

    @property
    def keeps_records(self) -> bool:
        """Always true, also while Redis does not answer this process: others may reach it."""
        return True

    async def ask(self, token: LockToken) -> NotRenewed:
        """Return the clock of Redis, and the expired generation of the record, if any."""
        result = await self._commands.submit(LockCommand(EXPIRED_GENERATIONS, token))
        if result is None:
            return UNREACHABLE
        expired_generation, now = result
        return NotRenewed(now, expired_generation)

    async def write_record(self, token: LockToken, record: LockRecord) -> Instant | None:
        """Write the record of a lock that SQL has prolonged. Its loss only delays a redelivery."""
        version = (record.queue_version.queue_id, record.queue_version.version)
        arguments = (record.generation, record.duration, record.bound, record.late_after, *version)
        result = await self._commands.submit(LockCommand(RECORD, token, arguments))
        return None if result is None else result[0]

    async def promises(self, tokens: Sequence[LockToken]) -> list[RecordedPromise | None]:
        """Return the generation of each record and the time until its deadline; None where Redis has no record."""
        results = await self._commands.submit_all([LockCommand(PROMISES, token) for token in tokens])
        return [RecordedPromise(*result) if result else None for result in results]

    async def expired_generations(self, tokens: Sequence[LockToken]) -> list[int]:
        """Return the generation of each record that has expired, and `NO_EXPIRED_GENERATION` for all others."""
        results = await self._commands.submit_all([LockCommand(EXPIRED_GENERATIONS, token) for token in tokens])
        return [NO_EXPIRED_GENERATION if result is None else result[0] for result in results]

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        """Delete records. The sweeper finds and deletes one that stays."""
        await self._commands.submit_all([LockCommand(DROP, token, (generation,)) for token, generation in ended])

    async def expired_records(self, limit: int, skip: int = 0) -> list[tuple[LockToken, int]]:
        """Return tokens whose records have expired, from all buckets in turn. They return until they are deleted."""
        replies = await self._connection.run(
            [ScriptCall(EXPIRED, [self._keys.index(b)], [skip + limit]) for b in range(BUCKETS)]
        )
        names = [reply.decode().split("\n") for reply in replies if isinstance(reply, bytes)]
        interleaved = (
            self._keys.token(name) for round_of_names in zip_longest(*names, fillvalue="") for name in round_of_names
        )
        tokens = list(islice((token for token in interleaved if token is not None), skip, skip + limit))
        # A record may have been prolonged since, or be gone; only the record itself proves that it has expired.
        generations = zip(tokens, await self.expired_generations(tokens), strict=True)
        return [(token, generation) for token, generation in generations if generation != NO_EXPIRED_GENERATION]

    async def close(self) -> None:
        """Finish commands that are under way. The caller closes the connection that it passed in."""
        await self._commands.close()

    async def _run(self, commands: list[LockCommand]) -> list[RecordResult]:
        """Run one script call per script and bucket, all in one round trip. Results have the order of the commands."""
        groups = defaultdict[tuple[Script, int], list[int]](list)
        for position, command in enumerate(commands):
            groups[command.script, bucket_of(command.token)].append(position)
        replies = await self._connection.run(
            [self._script_call([commands[position] for position in group]) for group in groups.values()]
        )
        results: list[RecordResult] = [None] * len(commands)
        for group, reply in zip(groups.values(), replies, strict=True):
            if isinstance(reply, bytes):
                for position, result in zip(group, reply.split(b"\n"), strict=True):
                    results[position] = tuple(map(int, result.split()))
        return results

    def _script_call(self, commands: Sequence[LockCommand]) -> ScriptCall:
        index = self._keys.index(bucket_of(commands[0].token))
        records = [self._keys.record(command.token) for command in commands]
        arguments = [argument for command in commands for argument in command.arguments]
        return ScriptCall(commands[0].script, [index, *records], arguments)
