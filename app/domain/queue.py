"""Queues: names, settings and the limits of settings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from app.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from app.domain.refusals import NewerQueue, ReceiveDisabled, SendDisabled, invalid_at
from app.domain.retry import NoDelay, RetryPolicy

MAX_NAME_LENGTH = 128
NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

MIN_LOCK_DURATION: Duration = SECOND
MAX_LOCK_DURATION: Duration = 12 * HOUR
DEFAULT_LOCK_DURATION: Duration = 30 * SECOND

HELD_LOCK_DURATION: Duration = 36_525 * DAY
"""How long a lock lasts in a queue with redelivery on request: a century, which means that it does not end by time."""

MAX_DELIVERY_LIMIT = 1_000_000
DEFAULT_MAX_DELIVERY_COUNT = 10

DEFAULT_MAX_MESSAGE_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 64 << 20

MAX_DUPLICATE_WINDOW: Duration = 7 * DAY
MAX_TTL: Duration = 3650 * DAY
DEFAULT_ARCHIVE_RETENTION: Duration = 7 * DAY
MAX_ARCHIVE_RETENTION: Duration = 3650 * DAY
_MIN_HISTORY_RETENTION: Duration = HOUR
"""How long events are kept at least: as long as the tombstones of deliveries, also in a queue without an archive."""

MAX_DEFAULT_WAIT: Duration = HOUR
"""The longest wait that a server can be configured to allow."""

MAX_QUEUE_DESCRIPTION_LENGTH = 1024
MAX_GROUP_IN_FLIGHT = 1000

MAX_LABELS = 50
MAX_LABEL_NAME_LENGTH = 128
MAX_LABEL_VALUE_LENGTH = 1024
MAX_LABELS_BYTES = 16 << 10
"""Bytes of the labels of a queue, a topic or a subscription together, as JSON."""

MAX_FORWARDING_HOPS = 4
"""How many times a message is forwarded at most. Each hop is a look-up for each send."""

LEAD_TIME_FACTOR = 4
REVOCATION_PERIOD: Duration = 2 * MINUTE
"""How long after a change of settings the locks from before it are revoked. A receive that was under way may commit its
locks after the change. Databases end its transaction before that: each statement within 15 s, each pause within 30 s."""

_MIN_LEAD_TIME: Duration = MINUTE
_MAX_LEAD_TIME: Duration = 10 * MINUTE


class QueueStatus(StrEnum):
    """Whether the queue accepts sends and receives."""

    ACTIVE = "active"
    SEND_DISABLED = "send_disabled"
    RECEIVE_DISABLED = "receive_disabled"
    DISABLED = "disabled"


WITHOUT_SENDS = (QueueStatus.SEND_DISABLED, QueueStatus.DISABLED)
WITHOUT_RECEIVES = (QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED)


class Redelivery(StrEnum):
    """When a message that was delivered and not settled is delivered again.

    `automatic`: when its lock ends, to any receiver. `on_request`: when its own receiver asks for it. Its lock then has
    no end but the end of the message.
    """

    AUTOMATIC = "automatic"
    ON_REQUEST = "on_request"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue; durations are in microseconds."""

    lock_duration: Duration = DEFAULT_LOCK_DURATION
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl: Duration | None = None
    dead_letter_on_expiry: bool = False
    duplicate_detection_window: Duration | None = None
    retry: RetryPolicy = field(default_factory=NoDelay)
    archive_retention: Duration = DEFAULT_ARCHIVE_RETENTION
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_messages: int | None = None
    status: QueueStatus = QueueStatus.ACTIVE
    redelivery: Redelivery = Redelivery.AUTOMATIC
    description: str = ""
    group_in_flight: int | None = None
    """How many messages of a group are available or locked at the same time. None: groups have no effect."""
    history: bool = False
    """Whether each transition of a message is recorded."""
    forward_to: str | None = None
    """The queue that stores the messages that are sent to this one. None: this queue."""
    forward_dead_letters_to: str | None = None
    """The queue to which dead-lettered messages are moved. None: they stay."""
    default_delay: Duration | None = None
    """The delay of a message that is stored here and was sent with neither a delay nor a due time. None: no delay."""
    default_wait: Duration | None = None
    """How long a receive waits that does not say so. None: it does not wait."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts by name, for operators and other interfaces. They have no effect on messages."""


LEVEL_OF_SETTING: Mapping[str, int] = {
    "group_in_flight": 1,
    "redelivery": 2,
    "history": 3,
    "forward_to": 4,
    "forward_dead_letters_to": 6,
    "default_delay": 8,
    "default_wait": 9,
    "labels": 10,
}
"""The feature level of each setting that servers of the first release do not know. Its default changes nothing for them.

Level 0 has the settings of version 0.1. Level 1 adds groups, level 2 redelivery on request, level 3
histories, in which the transitions that an older server makes would be missing, level 4 forwarding, level 5
synchronous sends, level 6 the forwarding of dead letters, level 7 shared bodies, level 8 the default delay, without
which an older server would deliver at once, level 9 the default wait, without which it would answer at once, and level 10
labels. An older server would drop such a setting with its next change of the queue.
"""

SYNCHRONOUS_LEVEL = 5
"""The feature level of a queue from its first synchronous send on. An older server would store the message."""

SHARED_BODIES_LEVEL = 7
"""The feature level of a queue in which messages may share bodies: one that is or was the target of a subscription. An
older server would deliver such a message without its body."""

FEATURE_LEVEL = max(SYNCHRONOUS_LEVEL, SHARED_BODIES_LEVEL, *LEVEL_OF_SETTING.values())
"""The newest feature level that this version knows."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A stored queue.

    `version` grows by one at every change; a queue that is deleted and created again starts over. `lock_purges` counts
    the purges that removed locked messages. `feature_level` is the level that a server must know to serve the queue.
    """

    id: int
    name: str
    settings: QueueSettings
    version: int
    created_at: Instant
    updated_at: Instant
    lock_purges: int = 0
    feature_level: int = 0

    @property
    def lock_version(self) -> int:
        """The version for which a lock record is valid: it also grows with each purge of locked messages."""
        return self.version + self.lock_purges

    @property
    def has_groups(self) -> bool:
        """Whether the queue limits how many messages of a group are in flight."""
        return self.settings.group_in_flight is not None

    @property
    def shares_bodies(self) -> bool:
        """Whether its messages may share bodies. A queue that does so never stops."""
        return self.feature_level >= SHARED_BODIES_LEVEL

    @property
    def etag(self) -> str:
        """The ETag of this version of the queue; no other queue of this name ever has the same."""
        return f"{self.id}-{self.version}"


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The number of messages in each state, and how long the oldest available one has waited.

    `uncommitted` sends wait for the commits of transactions. They are not in the queue yet.
    """

    available: int = 0
    scheduled: int = 0
    locked: int = 0
    deferred: int = 0
    dead_lettered: int = 0
    blocked: int = 0
    uncommitted: int = 0
    oldest_available: Duration | None = None

    @property
    def total(self) -> int:
        """The number of messages in the queue, in all states."""
        return self.available + self.scheduled + self.locked + self.deferred + self.dead_lettered + self.blocked


def is_valid_name(name: str) -> bool:
    """Return whether the name has 1 to 128 letters, digits, `.`, `_` or `-`, with a letter or digit at both ends."""
    return NAME_PATTERN.fullmatch(name) is not None


def required_level(settings: QueueSettings, level_of_setting: Mapping[str, int] = LEVEL_OF_SETTING) -> int:
    """Return the feature level that a server must know to serve a queue with these settings."""
    defaults = QueueSettings()
    used = (name for name in level_of_setting if getattr(settings, name) != getattr(defaults, name))
    return max((level_of_setting[name] for name in used), default=0)


def history_retention(settings: QueueSettings) -> Duration | None:
    """Return how long an event is kept at least, None if the queue records none."""
    return max(settings.archive_retention, _MIN_HISTORY_RETENTION) if settings.history else None


def check_known(queue: Queue) -> None:
    """Refuse with `NewerQueue` if the queue uses a setting that this version does not know."""
    if queue.feature_level > FEATURE_LEVEL:
        raise NewerQueue


def is_send_enabled(settings: QueueSettings) -> bool:
    """Return whether a queue with these settings accepts sends."""
    return settings.status not in WITHOUT_SENDS


def check_send_enabled(queue: Queue) -> None:
    """Refuse with `SendDisabled` if the queue accepts no sends."""
    if queue.settings.status in WITHOUT_SENDS:
        raise SendDisabled(f"Queue {queue.name} does not accept sends at present.")


def is_receive_enabled(settings: QueueSettings) -> bool:
    """Return whether a queue with these settings accepts receives."""
    return settings.status not in WITHOUT_RECEIVES


def check_receive_enabled(queue: Queue) -> None:
    """Refuse with `ReceiveDisabled` if the queue accepts no receives; settling stays allowed."""
    if queue.settings.status in WITHOUT_RECEIVES:
        raise ReceiveDisabled


def lock_duration_of(settings: QueueSettings, requested: Duration | None) -> Duration:
    """Return how long a new lock lasts; on request, no lock ends by time, so what the receiver asks for has no effect."""
    if settings.redelivery is Redelivery.ON_REQUEST:
        return HELD_LOCK_DURATION
    return requested or settings.lock_duration


def check_receiver(queue: Queue, receiver_id: str | None) -> None:
    """Refuse with `InvalidRequest` a receiver without a name that could not ask for its messages again."""
    if queue.settings.redelivery is Redelivery.ON_REQUEST and receiver_id is None:
        raise invalid_at("/receiver_id", "A receive from a queue with redelivery on request needs a receiver_id.")


class HeldLocks(Enum):
    """What a change of settings does to the locks that receivers hold under the old settings."""

    REVOKE = auto()
    KEEP = auto()


def revokes_locks(before: QueueSettings, after: QueueSettings, locks: HeldLocks = HeldLocks.REVOKE) -> bool:
    """Return whether this change of settings revokes the locks that receivers hold (S3.33).

    Holders rely on the lock duration, the delivery limit, the status and the redelivery; only changes of these revoke
    locks, and only if `locks` does not keep them.
    """
    return locks is HeldLocks.REVOKE and (
        before.lock_duration,
        before.max_delivery_count,
        before.status,
        before.redelivery,
    ) != (
        after.lock_duration,
        after.max_delivery_count,
        after.status,
        after.redelivery,
    )


def check_can_keep_locks(before: QueueSettings, after: QueueSettings) -> None:
    """Refuse with `InvalidRequest` a change of settings that cannot keep locks."""
    if before.redelivery is not after.redelivery:
        raise invalid_at(
            "/redelivery",
            "A change of the redelivery cannot keep locks: a lock that a receiver holds now would never end, or would end "
            "while its receiver relies on it.",
        )


def lead_time(lock_duration: Duration, *, shared_locks: bool) -> Duration:
    """Return how far ahead a renewal moves `locked_until` in SQL.

    With a shared lock store this is four lock durations (at least a minute, at most ten), so that most renewals need
    not write SQL. Without one it is the lock duration. It is never below the lock duration: otherwise the promise would
    exceed its own bound.
    """
    if not shared_locks:
        return lock_duration
    return max(lock_duration, min(max(LEAD_TIME_FACTOR * lock_duration, _MIN_LEAD_TIME), _MAX_LEAD_TIME))
