"""What background passes and administrators ask of the message store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.instant import Duration, Instant
from app.domain.message import Message, MessageMetadata, MessageState
from app.domain.queue import Queue
from app.domain.settlement import LockedMessage, Outcome, Removal


@dataclass(frozen=True, slots=True)
class UnlockedRow:
    """An unlocked row as it was seen; acts on it take effect only while it is still so."""

    sequence_number: int
    queue_id: int
    state: MessageState


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """An unlocked message that leaves its queue: expired, purged or cancelled."""

    row: UnlockedRow
    queue: str
    outcome: Outcome
    retention: Duration


@dataclass(frozen=True, slots=True)
class Redrive:
    """A dead-lettered message that goes back to work, in its queue or another, with counts anew."""

    row: UnlockedRow
    to_queue_id: int


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to an unlocked message; None leaves a field as it is. Takes effect only in the edition that was seen."""

    expected: Message
    available_at: Instant | None = None
    delay: Duration | None = None
    priority: int | None = None
    properties: bytes | None = None


@dataclass(frozen=True, slots=True)
class Promoted:
    """The numbers of scheduled messages that became available, by queue, and when the next one is due."""

    by_queue: Mapping[int, Sequence[int]]
    next_due_in: Duration | None


class MaintenanceStore(Protocol):
    """The message store as background passes and administrators see it. Batches are bounded by the caller."""

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        """One message in any state, untouched."""
        ...

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, limit: int) -> list[Message]:
        """Messages in these states with sequence numbers above `after`, ascending, untouched."""
        ...

    async def browse_metadata(
        self, queue_id: int, states: Sequence[MessageState], after: int, limit: int
    ) -> list[MessageMetadata]:
        """`browse` for whoever chooses among many: no body is read."""
        ...

    async def last_sequence_number(self) -> int:
        """The highest sequence number of any message of any queue, 0 where there is none: all later ones are above."""
        ...

    async def read_many(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
        """Those of these messages that are still in the queue, ascending, untouched."""
        ...

    async def expired_locks(self, limit: int) -> list[LockedMessage]:
        """Locked rows whose `locked_until` has passed, oldest first; nothing is locked or changed."""
        ...

    async def locks_of_queue(self, queue_id: int, granted_until: Instant, limit: int) -> list[LockedMessage]:
        """Locked rows of one queue that were locked until then, for an administrator's change that takes them."""
        ...

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled messages available, in their place by due time."""
        ...

    async def expired_messages(self, limit: int) -> list[UnlockedRow]:
        """Unlocked, not dead-lettered messages past their time to live."""
        ...

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """Move unlocked messages to the archive (or nowhere with retention 0), fenced by state."""
        ...

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """`withdraw` messages that are still past their time to live: an edit or a redrive may have prolonged it."""
        ...

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """`remove`, for an administrator who takes locks of one queue.

        Where one took effect, `lock_purges` of the queue grows in the same transaction, so that no lock record that was
        written before prolongs anything.
        """
        ...

    async def dead_letter(self, rows: Sequence[UnlockedRow], reason: str) -> list[bool]:
        """Dead-letter messages, fenced as `expire` is."""
        ...

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """Make dead-lettered messages available again: counts, lock traces and reasons cleared, TTL lifted.

        Nothing leaves a queue that is gone. Raises `QueueGone` where the target is, and then nothing has moved.
        """
        ...

    async def edit(self, edit: Edit) -> Message | None:
        """Apply an edit; None when the message is locked or no longer in the edition that was seen."""
        ...

    async def cancel(self, expected: Message, queue: Queue) -> bool:
        """Move a message of the queue to the archive as cancelled, fenced as an edit is; whether it took effect."""
        ...

    async def delete_expired(self, limit: int) -> int:
        """Remove tombstones, attempts and duplicate marks past their time, and move messages whose queue is gone,
        locked ones too, to the archive as purged; how many rows went."""
        ...
