"""The lock store: promises that were given without SQL, and what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.instant import Duration, Instant
from app.domain.settlement import LockToken


@dataclass(frozen=True, slots=True)
class QueueVersion:
    """Which queue is meant, and as of which `lock_version`: a queue that is made again has another id."""

    queue_id: int
    version: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock store prolonged the lock itself, inside its bound."""

    locked_until: Instant
    remaining: Duration


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """The lock store could not: SQL must. `asked_at` is its clock, None when it cannot be reached;
    `evidence` the generation of an expired record or `NO_EXPIRED_GENERATION`."""

    asked_at: Instant | None
    expired_generation: int


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What a renewal in SQL tells the lock store.

    `bound` is how far the lock store may prolong the lock by itself, `promised_until` how far the
    renewal itself promises; both come from `asked_at`. Only a renewal for the same edition of the
    queue may be prolonged by it.
    """

    generation: int
    duration: Duration
    bound: Instant
    promised_until: Instant
    queue_version: QueueVersion


class LockStore(Protocol):
    """The lock store. It only refines what SQL decides: every failure here is an answer, never an error.

    An unreachable lock store answers as if it knew nothing (`NotRenewed(None, NO_EVIDENCE)`, no
    evidence, nothing expired) and reports itself as degraded.
    """

    @property
    def is_shared(self) -> bool:
        """Whether several processes share it and it answers now; decides the lead of renewals."""
        ...

    @property
    def state(self) -> str:
        """`ok`, `degraded`, or `none` for a process on its own."""
        ...

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> Renewed | NotRenewed:
        """Prolong a lock to its own now + duration, only inside the bound of a record of this edition.

        This is step 1 of "Renew" in docs/protocol.md.

        A record of another queue, or of the queue before it was changed, cannot know of locks that were taken since.
        """
        ...

    async def write_record(self, token: LockToken, record: LockRecord) -> None:
        """Write the record after a renewal in SQL (step 6 of "Renew" in docs/protocol.md).

        The deadline is its own clock now + duration, read now. Nothing is written where a higher
        generation is stored, or once that clock has passed the promise that the renewal gave.
        """
        ...

    async def expired_generations(self, tokens: Sequence[LockToken]) -> list[int]:
        """For each token the generation of its *expired* record, else `NO_EXPIRED_GENERATION`."""
        ...

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        """Forget records of deliveries that have ended, each unless it is of a higher generation than this one."""
        ...

    async def expired_records(self, limit: int) -> list[tuple[LockToken, int]]:
        """Tokens whose records have expired, with the generation; the sweeper's positive evidence."""
        ...

    async def close(self) -> None:
        """Let the connections go."""
        ...
