"""The lock store of a single process. It keeps no records, because the rows in SQL already hold every promise.

A record could only prolong a lock inside a bound that SQL has granted ahead, or end it before that bound. Without a
shared lock store SQL grants nothing ahead: every renewal writes `locked_until` = now + the lock duration, which is the
promise itself. A record here would expire at the same moment, so it would have no effect, and a restart would lose it.
"""

from collections.abc import Sequence

from app.broker.ports.lock_store import LockRecord, NotRenewed, QueueVersion
from app.domain.explanation import RecordedPromise
from app.domain.instant import Duration, Instant
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken


class MemoryLockStore:
    """Implements `LockStore` by leaving every decision to SQL."""

    @property
    def is_shared(self) -> bool:
        """Always false: the lead of renewals is the lock duration."""
        return False

    @property
    def state(self) -> str:
        """Always `none`: nothing here can fail."""
        return "none"

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> NotRenewed:
        """SQL must prolong the lock, by its own clock."""
        return NotRenewed(asked_at=None, expired_generation=NO_EXPIRED_GENERATION)

    @property
    def keeps_records(self) -> bool:
        """Always false."""
        return False

    async def ask(self, token: LockToken) -> NotRenewed:
        """SQL must answer, by its own clock."""
        return NotRenewed(asked_at=None, expired_generation=NO_EXPIRED_GENERATION)

    async def write_record(self, token: LockToken, record: LockRecord) -> Instant | None:
        """Write nothing: SQL has recorded the renewal."""
        return None

    async def promises(self, tokens: Sequence[LockToken]) -> list[RecordedPromise | None]:
        """SQL has every promise."""
        return [None] * len(tokens)

    async def expired_generations(self, tokens: Sequence[LockToken]) -> list[int]:
        """No lock ends before its end in SQL."""
        return [NO_EXPIRED_GENERATION] * len(tokens)

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        """Delete nothing: no record exists."""

    async def expired_records(self, limit: int, skip: int = 0) -> list[tuple[LockToken, int]]:
        """No lock ends before its end in SQL."""
        return []

    async def close(self) -> None:
        """Nothing is open."""
