"""The lock store: records of renewed locks, which it can extend without SQL, and what processes share there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.explanation import RecordedPromise
from app.domain.instant import Duration, Instant
from app.domain.settlement import LockToken


@dataclass(frozen=True, slots=True)
class QueueVersion:
    """A queue id and its `lock_version`. A queue that is deleted and created again has another id."""

    queue_id: int
    version: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock store extended the lock itself, within its bound."""

    locked_until: Instant
    remaining: Duration


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """The lock store could not extend the lock, so SQL must.

    `asked_at` is the lock store's clock, or None if it is unreachable. `expired_generation` is the generation of an
    expired record, or `NO_EXPIRED_GENERATION`.
    """

    asked_at: Instant | None
    expired_generation: int


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What a renewal in SQL writes to the lock store.

    `bound` is how far the lock store may extend the lock without SQL. A record that is written after `late_after` has none.
    Both are computed from `asked_at`. The record serves only renewals for the same queue version.
    """

    generation: int
    duration: Duration
    bound: Instant
    late_after: Instant
    queue_version: QueueVersion


NOT_WRITTEN: Instant = 0
"""The deadline of a record that was not written."""


class LockStore(Protocol):
    """The lock store. It only refines what SQL decides: its methods return a result on failure and never raise.

    An unreachable lock store answers as if it were empty (`NotRenewed(None, NO_EXPIRED_GENERATION)`, no promises,
    no expired generations, no expired records) and reports itself as degraded.
    """

    @property
    def state(self) -> str:
        """`ok`, `degraded`, or `none` for a single process without a shared lock store."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether several processes share it and it answers now. Decides the lead time of renewals."""
        ...

    @property
    def keeps_records(self) -> bool:
        """Whether a renewal in any process may have written a record of a lock. False without a shared lock store."""
        ...

    async def promises(self, tokens: Sequence[LockToken]) -> list[RecordedPromise | None]:
        """Return for each token the promise of its record, unchanged; None without a record.

        A missing record says nothing about the lock, as in "Renew" in docs/protocol.md.
        """
        ...

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> Renewed | NotRenewed:
        """Extend a lock to the lock store's now + duration, within the bound of its record.

        This is step 1 of "Renew" in docs/protocol.md. The record must have this queue version: an older record does not
        know of locks that were revoked since.
        """
        ...

    async def ask(self, token: LockToken) -> NotRenewed:
        """Return the lock store's clock and the generation of an expired record, and extend nothing."""
        ...

    async def write_record(self, token: LockToken, record: LockRecord) -> Instant | None:
        """Write the record after SQL (step 6 of "Renew" in docs/protocol.md). Return its deadline, None without an answer.

        The record expires at the lock store's clock, read now, plus `duration`. It has no bound if that clock has passed
        `late_after`. Nothing is written if a higher generation is stored; then the deadline is `NOT_WRITTEN`.
        """
        ...

    async def expired_generations(self, tokens: Sequence[LockToken]) -> list[int]:
        """Return for each token the generation of its *expired* record, else `NO_EXPIRED_GENERATION`."""
        ...

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        """Delete records of ended deliveries, each only up to the given generation."""
        ...

    async def expired_records(self, limit: int, skip: int = 0) -> list[tuple[LockToken, int]]:
        """Return tokens with expired records, and their generations: these allow the sweeper to free a lock early.

        `skip` leaves out that many that a call without it would return first.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class SharedRecord(Protocol):
    """The highest values that any process of the broker has seen. They are kept for a month after the last process."""

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Raise the recorded values to these. Return the highest value of each name, or an empty mapping without an answer."""
        ...
