"""What a queue is: its name, its settings and the limits they keep."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from app.domain.refusals import ReceiveDisabled, SendDisabled
from app.domain.retry import NoDelay, RetryPolicy

LONGEST_NAME = 128
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

SHORTEST_LOCK: Duration = SECOND
LONGEST_LOCK: Duration = 12 * HOUR
DEFAULT_LOCK: Duration = 30 * SECOND

MOST_DELIVERIES = 1_000_000
DEFAULT_MAX_DELIVERY_COUNT = 10

LARGEST_MESSAGE_DEFAULT = 1 << 20
LARGEST_MESSAGE = 64 << 20

LONGEST_DUPLICATE_WINDOW: Duration = 7 * DAY
LONGEST_TTL: Duration = 3650 * DAY
DEFAULT_ARCHIVE_RETENTION: Duration = 7 * DAY
LONGEST_RETENTION: Duration = 3650 * DAY

LONGEST_DESCRIPTION = 1024

LEAD_FACTOR = 4
SHORTEST_LEAD: Duration = MINUTE
LONGEST_LEAD: Duration = 10 * MINUTE


class QueueStatus(StrEnum):
    """Whether the queue takes messages and hands them out."""

    ACTIVE = "active"
    SEND_DISABLED = "send_disabled"
    RECEIVE_DISABLED = "receive_disabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Everything about a queue that its owner chooses; durations are in microseconds."""

    lock_duration: Duration = DEFAULT_LOCK
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl: Duration | None = None
    dead_letter_on_expiry: bool = False
    duplicate_detection_window: Duration | None = None
    retry: RetryPolicy = field(default_factory=NoDelay)
    archive_retention: Duration = DEFAULT_ARCHIVE_RETENTION
    max_message_bytes: int = LARGEST_MESSAGE_DEFAULT
    max_messages: int | None = None
    status: QueueStatus = QueueStatus.ACTIVE
    description: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it stands: settings plus what the store knows of it.

    `version` grows by one at every change, and begins again with a queue that is deleted and made again.
    `lock_purges` counts the purges that took locks of it.
    """

    id: int
    name: str
    settings: QueueSettings
    version: int
    created_at: Instant
    updated_at: Instant
    lock_purges: int = 0

    @property
    def lock_version(self) -> int:
        """The version for which a lock record counts: it also grows with each purge of locked messages."""
        return self.version + self.lock_purges

    @property
    def edition(self) -> str:
        """This queue as it stands, and no other queue that ever had its name; its ETag."""
        return f"{self.id}-{self.version}"


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages are in each state, and since when the oldest available one has waited."""

    available: int = 0
    scheduled: int = 0
    locked: int = 0
    deferred: int = 0
    dead_lettered: int = 0
    uncommitted: int = 0
    oldest_available: Duration | None = None


def is_valid_name(name: str) -> bool:
    """1 to 128 of letters, digits, `.`, `_`, `-`; beginning and ending with a letter or digit."""
    return NAME.fullmatch(name) is not None


def allow_send(queue: Queue) -> None:
    """Refuse with `SendDisabled` where the queue takes no messages."""
    if queue.settings.status in (QueueStatus.SEND_DISABLED, QueueStatus.DISABLED):
        raise SendDisabled


def is_open_to_receivers(settings: QueueSettings) -> bool:
    """Whether a queue with these settings hands out messages."""
    return settings.status not in (QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED)


def allow_receive(queue: Queue) -> None:
    """Refuse with `ReceiveDisabled` where the queue hands out no messages; settling stays allowed."""
    if not is_open_to_receivers(queue.settings):
        raise ReceiveDisabled


def ends_locks(before: QueueSettings, after: QueueSettings) -> bool:
    """Whether this change of settings takes the locks that receivers hold (S3.33).

    Only what a holder relied on counts: the lock duration, the delivery limit and the status.
    """
    return (before.lock_duration, before.max_delivery_count, before.status) != (
        after.lock_duration,
        after.max_delivery_count,
        after.status,
    )


def lead(lock_duration: Duration, *, shared_locks: bool) -> Duration:
    """How far ahead a renewal moves `locked_until` in SQL.

    With a shared lock store that is four lock durations (at least a minute, at most ten), so that
    most renewals need not write SQL; without one it is the lock duration itself. Never below the
    lock duration, or the promise would pass its own bound.
    """
    if not shared_locks:
        return lock_duration
    return max(lock_duration, min(max(LEAD_FACTOR * lock_duration, SHORTEST_LEAD), LONGEST_LEAD))
