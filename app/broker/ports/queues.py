"""The queues and their settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.instant import Duration, Instant
from app.domain.queue import HeldLocks, Queue, QueueCounts, QueueSettings


@dataclass(frozen=True, slots=True)
class LockRevocation:
    """The locks that a change of their queue revokes: those given up to `granted_until`.

    `is_over` means that no further lock from that time can appear: `REVOCATION_PERIOD` is over, or the clock was set back.
    """

    queue_id: int
    granted_until: Instant
    is_over: bool


@dataclass(frozen=True, slots=True)
class DeletedQueue:
    """What the archive needs of a deleted queue: its name (empty if unknown) and its archive retention."""

    name: str
    archive_retention: Duration


class QueueStore(Protocol):
    """The queues, their settings, and what is left of deleted ones."""

    async def create(self, name: str, settings: QueueSettings, limit: int | None = None) -> tuple[Queue, bool]:
        """Return the queue of this name and whether it was created; create it with these settings if none exists.

        Refuses with `TooManyQueues` if `limit` queues exist. The limit also holds for concurrent calls. Refuses with
        `InvalidRequest`, `ForwardingCycle` or `ForwardingTooLong` a queue to forward to, even if concurrent changes
        would make a cycle only together.
        """
        ...

    async def by_name(self, name: str) -> Queue | None:
        """Return the queue of this name, or None."""
        ...

    async def by_id(self, queue_id: int) -> Queue | None:
        """Return the queue of this id, or None."""
        ...

    async def page(self, after: str, limit: int) -> list[Queue]:
        """Return queues with names above `after`, ascending by code point."""
        ...

    async def change(self, queue: Queue, settings: QueueSettings, locks: HeldLocks = HeldLocks.REVOKE) -> Queue | None:
        """Replace the settings of the queue; return None if its version has changed since it was read. Refuses a queue
        to forward to as `create` does.

        If this revokes locks (see `revokes_locks`), the same transaction stores a `LockRevocation` until `end_revocation`.
        """
        ...

    async def delete(self, queue: Queue) -> bool:
        """Delete the queue and its move tasks; return False if its version has changed.

        Its messages move to the archive later. Refuses with `QueueIsTarget` the target of a subscription.
        """
        ...

    async def check_deletable(self, queue: Queue) -> None:
        """Refuse with `QueueIsTarget` the target of a subscription, as `delete` does."""
        ...

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        """Return the exact counts per state of these queues."""
        ...

    async def total(self, queue_id: int) -> int:
        """Return the exact number of messages in the queue, in all states; cheaper than `counts`."""
        ...

    async def find_deleted(self, queue_id: int) -> DeletedQueue:
        """Return what is stored about a deleted queue."""
        ...

    async def that_forward_dead_letters(self) -> list[Queue]:
        """Return the queues that forward their dead letters, have one, and that this version knows."""
        ...

    async def dead_letter_sources(self, name: str) -> list[Queue]:
        """Return the queues that forward their dead letters to the queue of this name, by name."""
        ...

    async def revocations(self, limit: int) -> list[LockRevocation]:
        """Return the revocations that have locks or are over, earliest change first."""
        ...

    async def end_revocation(self, revocation: LockRevocation) -> None:
        """Delete a completed revocation; that of a later change of the queue remains."""
        ...

    async def start_lock_version(self) -> None:
        """Give all queues a new version, which invalidates all lock records. The next renewal of each lock reads the
        database."""
        ...

    async def await_replication(self) -> None:
        """Return once the standbys have all that was read before, at once if there are none.

        An answer that a change is already made needs this: its first try may have ended before the standbys had it.
        """
        ...
