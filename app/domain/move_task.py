"""Move tasks: a background loop moves the messages of one queue to other queues, page by page.

A task passes once, in order of sequence number, over the messages that its queue had at the start. Messages that are
locked, scheduled or deferred when the task comes to them stay, and so do those that their target does not accept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from app.domain.dead_letters import source_of
from app.domain.instant import DAY, SECOND, Duration, Instant
from app.domain.message import MessageMetadata, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, NotFound, invalid_at

MOVABLE_STATES = (MessageState.AVAILABLE, MessageState.BLOCKED, MessageState.DEAD_LETTERED)
"""The states from which messages move. A blocked one moves only if no message of its group stays in flight before it."""

PAGE_SIZE = 500
"""Messages that one transaction moves at most. It limits no request."""

MAX_TARGETS = 100
"""Queues to which the messages of one task without a named target go back."""

KEPT_TASKS = 10
"""The last tasks of each queue that are kept. It limits no request."""

WAIT_PERIOD: Duration = SECOND
"""How long a task waits before it checks again whether its target has room."""

MAX_WAIT: Duration = DAY
"""How long the target of a task may have no room until the task fails."""


class MoveState(IntEnum):
    """The state of a move task. The numbers are stored."""

    RUNNING = 1
    COMPLETED = 2
    CANCELLED = 3
    FAILED = 4

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


class MoveNotFound(NotFound):
    """This queue has no move task with this id; the last ten are kept."""

    code = "move-not-found"


class MoveRunning(Conflict):
    """A move task of this queue is running; cancel it, or wait until it has ended."""

    code = "move-running"


class MoveEnded(Conflict):
    """This move task has already ended."""

    code = "move-ended"


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What a task was asked to do: move messages to queue `to_queue`, or each back to the queue that dead-lettered it.

    `target_ids` are the queues to which they may go. `rate` is the largest number of messages per second, None for no limit.
    """

    to_queue: str | None
    target_ids: tuple[int, ...]
    rate: float | None = None

    @property
    def page_size(self) -> int:
        """How many messages may move at once: those of one second, at most `PAGE_SIZE`."""
        return PAGE_SIZE if self.rate is None else max(1, min(PAGE_SIZE, int(self.rate)))

    def pause_after(self, moved: int) -> Duration:
        """Return how long the next page waits after one that has moved this number of messages."""
        return 0 if self.rate is None else -int(-moved * SECOND // self.rate)

    @property
    def longest_pause(self) -> Duration:
        """The longest time between two pages. A task whose next page is further away is due: the clock was set back."""
        return max(WAIT_PERIOD, self.pause_after(self.page_size))


@dataclass(frozen=True, slots=True)
class MoveTask:
    """A move task as it was read at `read_at`.

    It has passed over the messages up to number `position`, and ends after `last_number`. Of the `found` messages that the
    queue had at the start, `moved` have moved. `progressed_at` is when the position changed last. The next page is due at
    `next_at`. `reason` says why it has failed.
    """

    id: str
    queue_id: int
    request: MoveRequest
    state: MoveState
    position: int
    last_number: int
    found: int
    moved: int
    started_at: Instant
    progressed_at: Instant
    next_at: Instant
    ended_at: Instant | None
    reason: str | None
    read_at: Instant

    @property
    def due_in(self) -> Duration:
        """How long it is until the next page is due, 0 if it is."""
        left = self.next_at - self.read_at
        return left if 0 < left <= self.request.longest_pause else 0

    def pause_after(self, position: int, moved: int) -> Duration:
        """Return how long the next page waits after one that has moved this number of messages and ends at this position."""
        return WAIT_PERIOD if position == self.position else self.request.pause_after(moved)

    @property
    def has_waited_too_long(self) -> bool:
        """Whether the target has had no room for longer than a task waits."""
        return self.read_at - self.progressed_at > MAX_WAIT


def target_name_of(message: MessageMetadata, request: MoveRequest) -> str | None:
    """Return the name of the queue to which a task moves a message: the named one, or the one that dead-lettered it.

    Return None for a message that stays because no queue has forwarded it as a dead letter.
    """
    return request.to_queue or source_of(message.envelope.properties)


def check_targets(queue: Queue, to_queue: str | None, targets: Sequence[Queue]) -> None:
    """Refuse with `InvalidRequest` a move of a queue to itself, or to no queue, or to too many."""
    if queue.id in [target.id for target in targets]:
        raise invalid_at(
            "/to_queue", "The messages are already in this queue; a redrive resets dead letters in their own."
        )
    if to_queue is None and not targets:
        raise invalid_at("/to_queue", f"No queue forwards its dead letters to queue {queue.name}, so name the target.")
    if len(targets) > MAX_TARGETS:
        raise invalid_at(
            "/to_queue", f"More than {MAX_TARGETS} queues forward their dead letters to queue {queue.name}; name one."
        )
