"""The lock store in Redis, shared by all processes; its clock is the only one that locks go by."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from app.broker.ports import Edition, LockRecord, NotRenewed, Renewed
from app.domain.instant import Duration
from app.domain.settlement import NO_EVIDENCE, LockToken
from app.locks.keys import BUCKETS, Keys, bucket_of
from app.locks.link import Call, Link
from app.locks.lua import DROP, EVIDENCE, EXPIRED, RECORD, RENEW, Script
from app.runtime.coalescer import Coalescer

IN_FLIGHT = 2
LARGEST_BATCH = 256

UNREACHABLE = NotRenewed(asked_at=None, evidence=NO_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Errand:
    """What one caller wants done with one record."""

    script: Script
    token: LockToken
    arguments: tuple[int, ...] = ()


Line = tuple[int, ...] | None
"""The numbers a script answers for one record; None when Redis did not answer."""


class RedisLocks:
    """Implements `Locks`. Callers who come while a round trip is under way share the next one.

    Crash window: a record that was written for nothing (its process died, the reply was lost) only
    delays a redelivery, and it expires by itself.
    """

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._keeps_records = True
        self._errands = Coalescer[Errand, Line](self._run, in_flight=IN_FLIGHT, largest=LARGEST_BATCH)

    @property
    def is_shared(self) -> bool:
        """Whether renewals may count on it now: it answers, and did not refuse to keep the last record."""
        return self._link.is_up and self._keeps_records

    @property
    def state(self) -> str:
        """`ok`, or `degraded` while Redis is left alone after failures, or is full, or a replica."""
        return "ok" if self.is_shared else "degraded"

    async def renew(self, token: LockToken, duration: Duration, edition: Edition) -> Renewed | NotRenewed:
        """Prolong a lock whose record lives, inside its bound; otherwise say what the record tells."""
        arguments = (duration, edition.queue_id, edition.version)
        line = await self._errands.submit(Errand(RENEW, token, arguments))
        if line is None:
            return UNREACHABLE
        now, granted, evidence = line
        return Renewed(granted, duration) if granted else NotRenewed(now, evidence)

    async def record(self, token: LockToken, record: LockRecord) -> None:
        """Write the record of a lock that SQL has prolonged; losing it only delays a redelivery."""
        edition = (record.edition.queue_id, record.edition.version)
        arguments = (record.generation, record.duration, record.bound, record.promised_until, *edition)
        await self._errands.submit(Errand(RECORD, token, arguments))

    async def evidence(self, tokens: Sequence[LockToken]) -> list[int]:
        """The generations of records that have expired; `NO_EVIDENCE` for all others."""
        lines = await self._errands.submit_together([Errand(EVIDENCE, token) for token in tokens])
        return [NO_EVIDENCE if line is None else line[0] for line in lines]

    async def drop(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        """Forget records; one that stays is found by the sweeper and dropped then."""
        await self._errands.submit_together([Errand(DROP, token, (generation,)) for token, generation in ended])

    async def expired(self, most: int) -> list[tuple[LockToken, int]]:
        """Tokens whose records have expired, from all buckets in turn; the same again until dropped."""
        replies = await self._link.run([Call(EXPIRED, [self._keys.index(b)], [most]) for b in range(BUCKETS)])
        names = [reply.decode().split("\n") for reply in replies if isinstance(reply, bytes)]
        in_turn = (self._keys.token(name) for one_of_each in zip_longest(*names, fillvalue="") for name in one_of_each)
        tokens = list(islice((token for token in in_turn if token is not None), most))
        # A record may have been prolonged since, or be gone; only what it says itself is evidence.
        found = zip(tokens, await self.evidence(tokens), strict=True)
        return [(token, generation) for token, generation in found if generation != NO_EVIDENCE]

    async def close(self) -> None:
        """Finish what is under way. The link belongs to whoever opened it."""
        await self._errands.close()

    async def _run(self, errands: list[Errand]) -> list[Line]:
        """One script call per kind and bucket, all in one round trip; lines in the order of the errands."""
        groups = defaultdict[tuple[Script, int], list[int]](list)
        for place, errand in enumerate(errands):
            groups[errand.script, bucket_of(errand.token)].append(place)
        replies = await self._link.run([self._call([errands[place] for place in group]) for group in groups.values()])
        lines: list[Line] = [None] * len(errands)
        for ((script, _), group), reply in zip(groups.items(), replies, strict=True):
            if isinstance(reply, bytes):
                for place, line in zip(group, reply.split(b"\n"), strict=True):
                    lines[place] = tuple(map(int, line.split()))
            if script is RECORD and reply is not None:
                self._keeps_records = isinstance(reply, bytes)
        return lines

    def _call(self, errands: Sequence[Errand]) -> Call:
        index = self._keys.index(bucket_of(errands[0].token))
        records = [self._keys.record(errand.token) for errand in errands]
        arguments = [argument for errand in errands for argument in errand.arguments]
        return Call(errands[0].script, [index, *records], arguments)
