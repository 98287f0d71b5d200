"""A lock store for tests that processes share, in memory."""

from app.broker.ports.lock_store import LockRecord, NotRenewed, QueueVersion, Renewed
from app.domain.instant import SECOND, Duration, Instant
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken
from app.locks.memory_lock_store import MemoryLockStore
from tests.virtual_clock import VirtualClock

LOCK_STORE_CLOCK_OFFSET = 7 * SECOND
"""How far the clock of the lock store is ahead of the clock of the message store."""
ASKING_SECONDS = 0.5


class SharedLockStore(MemoryLockStore):
    """A lock store with its own clock, which takes time to answer and records what is written."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.is_reachable = True
        self.accepts_records = True
        self.writing_seconds = 0.0
        self.expired_generation = NO_EXPIRED_GENERATION
        self.prolongs_until: Instant | None = None
        self.records: list[LockRecord] = []

    @property
    def is_shared(self) -> bool:
        return True

    def now(self) -> Instant:
        return self._clock.now() + LOCK_STORE_CLOCK_OFFSET

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> Renewed | NotRenewed:
        asked_at = self.now() if self.is_reachable else None
        await self._clock.advance(ASKING_SECONDS)
        if self.prolongs_until is not None:
            return Renewed(self.prolongs_until, duration)
        return NotRenewed(asked_at, NO_EXPIRED_GENERATION)

    @property
    def keeps_records(self) -> bool:
        return True

    async def ask(self, token: LockToken) -> NotRenewed:
        asked_at = self.now() if self.is_reachable else None
        await self._clock.advance(ASKING_SECONDS)
        return NotRenewed(asked_at, self.expired_generation)

    async def write_record(self, token: LockToken, record: LockRecord) -> Instant | None:
        if not self.accepts_records:
            return None
        await self._clock.advance(self.writing_seconds)
        self.records.append(record)
        return self.now() + record.duration
