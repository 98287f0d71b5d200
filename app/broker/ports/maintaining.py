"""Changes by administrators and background loops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.instant import Duration, Instant
from app.domain.message import Message, MessageState, Receipt
from app.domain.move_task import MoveState, MoveTask
from app.domain.queue import Queue
from app.domain.settlement import Outcome, Removal


@dataclass(frozen=True, slots=True)
class UnlockedRow:
    """An unlocked row as it was read. Changes take effect only while it is still in this queue and state.

    `is_offered` if its sender waits for a settlement.
    """

    sequence_number: int
    queue_id: int
    state: MessageState
    is_offered: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """An unlocked message that leaves its queue: expired, purged or cancelled."""

    row: UnlockedRow
    queue: str
    outcome: Outcome
    retention: Duration


@dataclass(frozen=True, slots=True)
class Redrive:
    """A message that becomes available in another queue, or a dead-lettered one in its own, with counts of 0.

    If its queue forwards it, `forwarded_from` is that queue. Then the message keeps the reason for which it was
    dead-lettered, and the name becomes a property.
    """

    row: UnlockedRow
    to_queue_id: int
    forwarded_from: Queue | None = None


@dataclass(frozen=True, slots=True)
class MoveStep:
    """The next page of a move task: these messages move, and the task has passed over those up to `position`.

    Afterwards the task is in this state; `reason` says why it has failed.
    """

    task: MoveTask
    redrives: Sequence[Redrive]
    position: int
    state: MoveState = MoveState.RUNNING
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to an unlocked message; None keeps a field. Takes effect only if the ETag is still that of `expected`."""

    expected: Message
    available_at: Instant | None = None
    delay: Duration | None = None
    priority: int | None = None
    properties: bytes | None = None


@dataclass(frozen=True, slots=True)
class Promoted:
    """The sequence numbers of messages that became available, by queue, and the time until the next one is due."""

    by_queue: Mapping[int, Sequence[int]]
    next_due_in: Duration | None


class MaintainingStore(Protocol):
    """What administrators and background loops change. The caller bounds each batch."""

    async def edit(self, edit: Edit) -> Message | None:
        """Apply an edit; return None if the message is locked or its ETag has changed."""
        ...

    async def cancel(self, expected: Message, queue: Queue) -> bool:
        """Move a message to the archive as cancelled, fenced as an edit is; return whether it took effect."""
        ...

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """Move unlocked messages to the archive, fenced by state; with a retention of 0 they are deleted."""
        ...

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """Remove locked messages of one queue for an administrator, as `remove` does.

        If any removal takes effect, the same transaction increments the queue's `lock_purges`, so that no earlier lock
        record extends a lock.
        """
        ...

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """Make messages available: clear counts, lock columns, reasons and the time to live.

        Only dead-lettered, available and blocked messages move. The latter stay if they have expired, if their sender
        waits, or behind a message of their group that is in flight. Messages of a deleted queue stay, and those that
        another transaction holds, or the group that they enter. Raises `QueueGone` if the target is deleted, or if a
        queue that forwards was changed; then nothing has moved.
        """
        ...

    async def advance_move(self, step: MoveStep) -> list[bool] | None:
        """Move the messages of a step as `redrive` does, and record the step, in one transaction.

        The step ends before the first message that another transaction holds, and the next step begins there. Return
        whether each message has moved. Return None, and move nothing, if the task has changed since it was read, if its
        page is not due, or if another transaction holds it. So two callers never move the same page. Raises `QueueGone`
        if a target is deleted.
        """
        ...

    async def restore(self, queue: Queue, numbers: Sequence[int]) -> list[Receipt]:
        """Store archived messages again, each as a new message of this queue; return receipts, in their order.

        One transaction takes a message from those that can be restored and stores it, so each is restored once. Messages
        that another restore takes at the same time are left out. Raises `QueueGone`.
        """
        ...

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled messages available, in the order of their due times.

        In a queue with groups they enter their groups. Those that are blocked then are not in the answer.
        """
        ...

    async def admit_after_changes(self, limit: int) -> bool:
        """Admit blocked messages of queues whose `group_in_flight` has changed, in up to `limit` groups of each.

        Return whether none is left.
        """
        ...

    async def expired_messages(self, limit: int) -> list[UnlockedRow]:
        """Return messages past their time to live that are neither locked nor dead-lettered, blocked ones too."""
        ...

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """Withdraw messages that are still past their time to live: an edit or redrive may have extended it."""
        ...

    async def dead_letter(self, rows: Sequence[UnlockedRow], reason: str) -> list[bool]:
        """Dead-letter messages, fenced as `expire` is."""
        ...

    async def delete_expired(self, limit: int) -> int:
        """Delete expired tombstones, attempts and duplicate records; return the number of rows.

        Messages of deleted queues, locked ones too, move to the archive as purged and count as well.
        """
        ...
