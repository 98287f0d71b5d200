"""Queues in requests and responses."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from app.domain.instant import from_seconds, to_seconds
from app.domain.message import MessageState
from app.domain.queue import (
    DEFAULT_ARCHIVE_RETENTION,
    DEFAULT_LOCK_DURATION,
    DEFAULT_MAX_DELIVERY_COUNT,
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_ARCHIVE_RETENTION,
    MAX_DEFAULT_WAIT,
    MAX_DELIVERY_LIMIT,
    MAX_DUPLICATE_WINDOW,
    MAX_GROUP_IN_FLIGHT,
    MAX_LABELS_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_QUEUE_DESCRIPTION_LENGTH,
    HeldLocks,
    Queue,
    QueueCounts,
    QueueSettings,
    QueueStatus,
    Redelivery,
)
from app.domain.retry import MAX_DELAY
from app.wire.field_types import (
    NO_NUL,
    DateTime,
    Filter,
    LockSeconds,
    MaxMessages,
    QueueName,
    StateName,
    Timestamp,
    TtlSeconds,
    text_of,
)
from app.wire.labels import Labels, check_labels
from app.wire.plans import DryRun, PlanView
from app.wire.retry import NoRetryDelay, RetrySettings, retry_settings, to_retry_policy
from app.wire.times import to_wire

DeliveryLimit: TypeAlias = Annotated[
    int,
    msgspec.Meta(ge=1, le=MAX_DELIVERY_LIMIT, description="A message is dead-lettered after this number of failures."),
]
Retention: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0, le=to_seconds(MAX_ARCHIVE_RETENTION), description="How long ended messages are archived; 0: not at all."
    ),
]
DuplicateWindow: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0.001,
        le=to_seconds(MAX_DUPLICATE_WINDOW),
        description="How long a message id is kept, so that a repeated send stores no message; null: not at all.",
    ),
]
MessageBytes: TypeAlias = Annotated[
    int, msgspec.Meta(ge=1, le=MAX_MESSAGE_BYTES, description="The largest size of body and properties together.")
]
MessageLimit: TypeAlias = Annotated[
    int, msgspec.Meta(ge=1, le=2**53, description="The largest number of messages, in all states; null: no limit.")
]
GroupLimit: TypeAlias = Annotated[
    int,
    msgspec.Meta(
        ge=1,
        le=MAX_GROUP_IN_FLIGHT,
        description="How many messages of a `group_id` are available or locked at the same time. The others are blocked. "
        "1: first in, first out in each group, one receiver at a time; null: groups have no effect.",
    ),
]
RecordsHistory: TypeAlias = Annotated[
    bool, msgspec.Meta(description="Whether each transition of a message is recorded, from then on.")
]
ForwardTo: TypeAlias = Annotated[
    QueueName,
    msgspec.Meta(
        description="The queue that stores the messages that are sent to this one; null: this one. Messages that are "
        "already here stay."
    ),
]
ForwardDeadLettersTo: TypeAlias = Annotated[
    QueueName,
    msgspec.Meta(
        description="The queue to which dead-lettered messages are moved, with their reason and the property "
        "`dead_letter_queue`; null: they stay. What that queue does not accept stays too."
    ),
]
DefaultDelay: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0,
        le=to_seconds(MAX_DELAY),
        description="How long a message without `delay_seconds` or `available_at` waits before it can be received; null: "
        "not at all. With the delivery `synchronous` it does not wait.",
    ),
]
DefaultWait: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0,
        le=to_seconds(MAX_DEFAULT_WAIT),
        description="How long a receive without `wait_seconds` waits for the first message; null: not at all. The server "
        "caps it.",
    ),
]
QueueDescription: TypeAlias = Annotated[
    str, text_of(NO_NUL, "Text for operators.", max_length=MAX_QUEUE_DESCRIPTION_LENGTH)
]
States: TypeAlias = Annotated[list[StateName], msgspec.Meta(min_length=1)]
Rate: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0.001,
        le=1_000_000,
        description="The largest number of messages per second. The response waits until the next message may move, so "
        "repeated requests keep the limit too.",
    ),
]


MAX_QUEUE_BYTES = (10 << 10) + MAX_LABELS_BYTES
"""Bytes of a queue on a page: a description of 1024 characters, of up to 6 bytes of JSON each, 100 delays, and labels."""

DURATIONS = (
    "lock_duration",
    "default_ttl",
    "duplicate_detection_window",
    "archive_retention",
    "default_delay",
    "default_wait",
)
"""The settings that are durations; in JSON they are seconds."""

JSON_NAMES = {
    field.name: f"{field.name}_seconds" if field.name in DURATIONS else field.name for field in fields(QueueSettings)
}
"""The name of each setting in JSON."""


class QueueSettingsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The settings of a queue; omitted settings have their defaults."""

    lock_duration_seconds: LockSeconds = to_seconds(DEFAULT_LOCK_DURATION)
    max_delivery_count: DeliveryLimit = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl_seconds: TtlSeconds | None = None
    dead_letter_on_expiry: bool = False
    duplicate_detection_window_seconds: DuplicateWindow | None = None
    retry: RetrySettings = msgspec.field(default_factory=NoRetryDelay)
    archive_retention_seconds: Retention = to_seconds(DEFAULT_ARCHIVE_RETENTION)
    max_message_bytes: MessageBytes = DEFAULT_MAX_MESSAGE_BYTES
    max_messages: MessageLimit | None = None
    status: QueueStatus = QueueStatus.ACTIVE
    redelivery: Redelivery = Redelivery.AUTOMATIC
    description: QueueDescription = ""
    group_in_flight: GroupLimit | None = None
    history: RecordsHistory = False
    forward_to: ForwardTo | None = None
    forward_dead_letters_to: ForwardDeadLettersTo | None = None
    default_delay_seconds: DefaultDelay | None = None
    default_wait_seconds: DefaultWait | None = None
    labels: Labels = msgspec.field(default_factory=dict[str, str])

    def settings(self) -> QueueSettings:
        """Convert to the settings of the broker. Refuses with `InvalidRequest` labels with too many bytes."""
        check_labels(self.labels)
        return QueueSettings(**{name: _from_json(name, getattr(self, json)) for name, json in JSON_NAMES.items()})


class MessageCounts(msgspec.Struct):
    """The exact number of messages in each state."""

    available: int
    scheduled: int
    locked: int
    deferred: int
    dead_lettered: int
    blocked: int
    uncommitted: int


class QueueView(QueueSettingsBody, forbid_unknown_fields=False, kw_only=True):
    """A queue and its settings."""

    name: str
    created_at: Timestamp
    updated_at: Timestamp
    undeliverable: Literal["stored"]


class QueueStatusView(QueueView, forbid_unknown_fields=False, kw_only=True):
    """A queue with its message counts, and how long the oldest available message has waited."""

    counts: MessageCounts
    oldest_available_seconds: float | None


class QueuePage(msgspec.Struct):
    """Queues by name; `next_cursor` is null on the last page."""

    items: list[QueueStatusView]
    next_cursor: str | None


class ChangeQueue(msgspec.Struct, forbid_unknown_fields=True):
    """How a change of settings treats the locks that receivers hold."""

    keep_locks: Annotated[
        bool,
        msgspec.Meta(
            description="Whether receivers keep the locks that they hold, even if a setting that they rely on changes. Renewals "
            "then follow the new settings, and a change of `redelivery` is refused."
        ),
    ] = False

    @property
    def locks(self) -> HeldLocks:
        """What happens to these locks."""
        return HeldLocks.KEEP if self.keep_locks else HeldLocks.REVOKE


class PurgeQueue(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages to remove; without `states`, all that are not locked."""

    states: States | None = None
    filter: Filter | None = None
    limit: MaxMessages | None = None
    dry_run: DryRun = False


class PurgedMessages(PlanView, omit_defaults=True, kw_only=True):
    """The number of messages removed. Without a `limit`, repeat the request until it is 0."""

    removed: int


class DeleteQueue(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to delete the queue."""

    dry_run: DryRun = False


class RedriveDeadLetters(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead-lettered messages to redrive, to which queue (default: their own), and how fast."""

    to_queue: QueueName | None = None
    filter: Filter | None = None
    limit: MaxMessages | None = None
    rate_per_second: Rate | None = None
    dry_run: DryRun = False


class RedrivenMessages(PlanView, omit_defaults=True, kw_only=True):
    """The number of messages moved. Without a `limit`, repeat the request until it is 0."""

    moved: int


class RestoreMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Which purged and cancelled messages to restore; without `since`, all that the archive has."""

    since: (
        Annotated[DateTime, msgspec.Meta(description="Only messages that were removed at this time or later.")] | None
    ) = None
    filter: Filter | None = None
    limit: MaxMessages | None = None
    dry_run: DryRun = False


class RestoredMessages(PlanView, omit_defaults=True, kw_only=True):
    """The number of messages restored. Without a `limit`, repeat the request until it is 0."""

    restored: int


def settings_body(settings: QueueSettings) -> QueueSettingsBody:
    """Build the JSON of settings."""
    return QueueSettingsBody(**_fields(settings))


def queue_view(queue: Queue) -> QueueView:
    """Build the JSON of a queue, without its counts."""
    return QueueView(**_fields(queue.settings), **_identity(queue))


def queue_status(queue: Queue, counts: QueueCounts) -> QueueStatusView:
    """Build the JSON of a queue, with its counts."""
    oldest = counts.oldest_available
    return QueueStatusView(
        **_fields(queue.settings),
        **_identity(queue),
        counts=message_counts(counts),
        oldest_available_seconds=None if oldest is None else to_seconds(oldest),
    )


def message_counts(counts: QueueCounts) -> MessageCounts:
    """Build the JSON of counts."""
    return MessageCounts(
        available=counts.available,
        scheduled=counts.scheduled,
        locked=counts.locked,
        deferred=counts.deferred,
        dead_lettered=counts.dead_lettered,
        blocked=counts.blocked,
        uncommitted=counts.uncommitted,
    )


def parse_states(names: Sequence[StateName]) -> list[MessageState]:
    """Convert the names of states, without repetitions."""
    return [MessageState[name.upper()] for name in dict.fromkeys(names)]


def _fields(settings: QueueSettings) -> dict[str, Any]:
    return {json: _to_json(name, getattr(settings, name)) for name, json in JSON_NAMES.items()}


def _to_json(name: str, value: Any) -> Any:
    if name == "retry":
        return retry_settings(value)
    return value if value is None or name not in DURATIONS else to_seconds(value)


def _from_json(name: str, value: Any) -> Any:
    if name == "retry":
        return to_retry_policy(value)
    return value if value is None or name not in DURATIONS else from_seconds(value)


def _identity(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "created_at": to_wire(queue.created_at),
        "updated_at": to_wire(queue.updated_at),
        "undeliverable": "stored",
    }
