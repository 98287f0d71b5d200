"""Move tasks: a background loop moves the messages of one queue to other queues, page by page, or its dead letters back.

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

OWN_DEAD_LETTERS = (MessageState.DEAD_LETTERED,)
"""The states from which messages move within their queue."""

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

    `target_ids` are the queues to which they may go. The queue of the task is one of them if it holds dead letters of its own,
    which become available there again. `rate` is the largest number of messages per second, None for no limit.
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


def movable_states(queue: Queue, request: MoveRequest) -> Sequence[MessageState]:
    """Return the states from which messages of the queue move: only dead letters move within it."""
    return OWN_DEAD_LETTERS if request.target_ids == (queue.id,) else MOVABLE_STATES


def target_names_of(message: MessageMetadata, queue: Queue, request: MoveRequest) -> Sequence[str]:
    """Return the names of the queues to which a task of this queue moves a message, the first that accepts it.

    That is the named one. Without one, it is the queue that has forwarded the message as a dead letter, and then, for a
    message that this queue itself has dead-lettered, this queue.
    """
    if request.to_queue is not None:
        return [request.to_queue]
    source = source_of(message.envelope.properties)
    names = [] if source is None or source == queue.name else [source]
    return [*names, queue.name] if message.state is MessageState.DEAD_LETTERED else names


def other_queues(queue: Queue, targets: Sequence[Queue]) -> list[Queue]:
    """Return the targets that are other queues. Moving messages there needs the right to send to them."""
    return [target for target in targets if target.id != queue.id]


def check_targets(queue: Queue, to_queue: str | None, targets: Sequence[Queue]) -> None:
    """Refuse with `InvalidRequest` a move to the queue itself, to no queue, or to too many.

    Without a named target, the queue itself may be among the targets, for dead letters of its own.
    """
    if to_queue is not None and queue.id in [target.id for target in targets]:
        raise invalid_at(
            "/to_queue", "The messages are already in this queue; a redrive resets dead letters in their own."
        )
    if to_queue is None and not targets:
        detail = (
            f"No queue forwards its dead letters to queue {queue.name}, and it holds none of its own; name the target."
        )
        raise invalid_at("/to_queue", detail)
    if len(other_queues(queue, targets)) > MAX_TARGETS:
        raise invalid_at(
            "/to_queue", f"More than {MAX_TARGETS} queues forward their dead letters to queue {queue.name}; name one."
        )
