"""Queues as their owners write and read them."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.instant import Duration, from_seconds, to_seconds
from app.domain.message import MessageState
from app.domain.queue import (
    DEFAULT_ARCHIVE_RETENTION,
    DEFAULT_LOCK,
    DEFAULT_MAX_DELIVERY_COUNT,
    LARGEST_MESSAGE,
    LARGEST_MESSAGE_DEFAULT,
    LONGEST_DESCRIPTION,
    LONGEST_DUPLICATE_WINDOW,
    LONGEST_RETENTION,
    MOST_DELIVERIES,
    Queue,
    QueueCounts,
    QueueSettings,
    QueueStatus,
)
from app.domain.retry import (
    LONGEST_DELAY,
    MOST_DELAYS_LISTED,
    ExponentialDelay,
    FixedDelay,
    LinearDelay,
    ListedDelays,
    NoDelay,
    RetryPolicy,
)
from app.wire.shapes import NO_NUL, DelaySeconds, Filter, LockSeconds, TtlSeconds
from app.wire.times import to_wire

Factor: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=1000)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_DELIVERIES)]
Retention: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=to_seconds(LONGEST_RETENTION))]
Window: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=to_seconds(LONGEST_DUPLICATE_WINDOW))]
MessageBytes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_MESSAGE)]
MessageLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
QueueDescription: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_DESCRIPTION, pattern=NO_NUL)]
StateName: TypeAlias = Literal["available", "scheduled", "locked", "deferred", "dead_lettered"]

LONGEST_DELAY_SECONDS = to_seconds(LONGEST_DELAY)


class NoRetryDelay(msgspec.Struct, tag_field="kind", tag="none", forbid_unknown_fields=True):
    """Deliver again at once."""


class FixedRetryDelay(msgspec.Struct, tag_field="kind", tag="fixed", forbid_unknown_fields=True):
    """The same delay after every failure."""

    delay_seconds: DelaySeconds


class LinearRetryDelay(msgspec.Struct, tag_field="kind", tag="linear", forbid_unknown_fields=True):
    """`first_seconds`, then `step_seconds` more after each failure, up to `max_seconds`."""

    first_seconds: DelaySeconds
    step_seconds: DelaySeconds
    max_seconds: DelaySeconds = LONGEST_DELAY_SECONDS


class ExponentialRetryDelay(msgspec.Struct, tag_field="kind", tag="exponential", forbid_unknown_fields=True):
    """`first_seconds`, then `factor` times the one before, up to `max_seconds`; chance takes up to `jitter` of it."""

    first_seconds: DelaySeconds
    factor: Factor = 2.0
    max_seconds: DelaySeconds = LONGEST_DELAY_SECONDS
    jitter: Share = 0.0


class ListRetryDelay(msgspec.Struct, tag_field="kind", tag="list", forbid_unknown_fields=True):
    """One delay per failure in order; the last one from then on."""

    delays_seconds: Annotated[list[DelaySeconds], msgspec.Meta(min_length=1, max_length=MOST_DELAYS_LISTED)]


RetrySettings: TypeAlias = (
    NoRetryDelay | FixedRetryDelay | LinearRetryDelay | ExponentialRetryDelay | ListRetryDelay
)


class QueueSettingsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The settings of a queue; what is left out has its default."""

    lock_duration_seconds: LockSeconds = to_seconds(DEFAULT_LOCK)
    max_delivery_count: Count = DEFAULT_MAX_DELIVERY_COUNT
    default_ttl_seconds: TtlSeconds | None = None
    dead_letter_on_expiry: bool = False
    duplicate_detection_window_seconds: Window | None = None
    retry: RetrySettings = msgspec.field(default_factory=NoRetryDelay)
    archive_retention_seconds: Retention = to_seconds(DEFAULT_ARCHIVE_RETENTION)
    max_message_bytes: MessageBytes = LARGEST_MESSAGE_DEFAULT
    max_messages: MessageLimit | None = None
    status: QueueStatus = QueueStatus.ACTIVE
    description: QueueDescription = ""

    def settings(self) -> QueueSettings:
        """The settings as the broker keeps them."""
        return QueueSettings(
            lock_duration=from_seconds(self.lock_duration_seconds),
            max_delivery_count=self.max_delivery_count,
            default_ttl=_maybe_duration(self.default_ttl_seconds),
            dead_letter_on_expiry=self.dead_letter_on_expiry,
            duplicate_detection_window=_maybe_duration(self.duplicate_detection_window_seconds),
            retry=_policy(self.retry),
            archive_retention=from_seconds(self.archive_retention_seconds),
            max_message_bytes=self.max_message_bytes,
            max_messages=self.max_messages,
            status=self.status,
            description=self.description,
        )


class MessageCounts(msgspec.Struct):
    """How many messages are in each state, exactly."""

    available: int
    scheduled: int
    locked: int
    deferred: int
    dead_lettered: int
    uncommitted: int


class QueueView(QueueSettingsBody, forbid_unknown_fields=False, kw_only=True):
    """A queue: its settings, what it holds, and since when the oldest available message has waited."""

    name: str
    created_at: str
    updated_at: str


class QueueStatusView(QueueView, forbid_unknown_fields=False, kw_only=True):
    """A queue together with what it holds at this moment."""

    counts: MessageCounts
    oldest_available_seconds: float | None


class QueuePage(msgspec.Struct):
    """Queues by name; `next_cursor` is null at the end."""

    items: list[QueueStatusView]
    next_cursor: str | None


class PurgeQueue(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages to remove; without `states` every one that is not locked."""

    states: Annotated[list[StateName], msgspec.Meta(min_length=1)] | None = None
    filter: Filter | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Purged(msgspec.Struct):
    """How many messages went."""

    removed: int


class RedriveDeadLetters(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead-lettered messages go back to work, where to (their own queue), and how fast."""

    to_queue: str | None = None
    filter: Filter | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    rate_per_second: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None


class Redriven(msgspec.Struct):
    """How many messages went back; ask again while it is more than 0 and no `limit` was given."""

    moved: int


def settings_body(settings: QueueSettings) -> QueueSettingsBody:
    """Settings on the wire."""
    return QueueSettingsBody(**_fields(settings))


def queue_view(queue: Queue) -> QueueView:
    """A queue on the wire, without its counts."""
    return QueueView(**_fields(queue.settings), **_identity(queue))


def queue_status(queue: Queue, counts: QueueCounts) -> QueueStatusView:
    """A queue on the wire, with its counts."""
    oldest = counts.oldest_available
    return QueueStatusView(
        **_fields(queue.settings),
        **_identity(queue),
        counts=MessageCounts(**{name: getattr(counts, name) for name in MessageCounts.__struct_fields__}),
        oldest_available_seconds=None if oldest is None else to_seconds(oldest),
    )


def states(names: list[StateName]) -> list[MessageState]:
    """States by their names on the wire."""
    return [MessageState[name.upper()] for name in names]


def _fields(settings: QueueSettings) -> dict[str, object]:
    return {
        "lock_duration_seconds": to_seconds(settings.lock_duration),
        "max_delivery_count": settings.max_delivery_count,
        "default_ttl_seconds": _maybe_seconds(settings.default_ttl),
        "dead_letter_on_expiry": settings.dead_letter_on_expiry,
        "duplicate_detection_window_seconds": _maybe_seconds(settings.duplicate_detection_window),
        "retry": _retry_settings(settings.retry),
        "archive_retention_seconds": to_seconds(settings.archive_retention),
        "max_message_bytes": settings.max_message_bytes,
        "max_messages": settings.max_messages,
        "status": settings.status,
        "description": settings.description,
    }


def _identity(queue: Queue) -> dict[str, str]:
    return {
        "name": queue.name,
        "created_at": to_wire(queue.created_at),
        "updated_at": to_wire(queue.updated_at),
    }


def _policy(retry: RetrySettings) -> RetryPolicy:
    match retry:
        case NoRetryDelay():
            return NoDelay()
        case FixedRetryDelay(delay_seconds=delay):
            return FixedDelay(from_seconds(delay))
        case LinearRetryDelay(first_seconds=first, step_seconds=step, max_seconds=longest):
            return LinearDelay(from_seconds(first), from_seconds(step), from_seconds(longest))
        case ExponentialRetryDelay(first_seconds=first, factor=factor, max_seconds=longest, jitter=jitter):
            return ExponentialDelay(from_seconds(first), factor, from_seconds(longest), jitter)
        case ListRetryDelay(delays_seconds=delays):
            return ListedDelays(tuple(from_seconds(delay) for delay in delays))


def _retry_settings(policy: RetryPolicy) -> RetrySettings:
    match policy:
        case NoDelay():
            return NoRetryDelay()
        case FixedDelay(delay):
            return FixedRetryDelay(to_seconds(delay))
        case LinearDelay(first, step, longest):
            return LinearRetryDelay(to_seconds(first), to_seconds(step), to_seconds(longest))
        case ExponentialDelay(first, factor, longest, jitter):
            return ExponentialRetryDelay(to_seconds(first), factor, to_seconds(longest), jitter)
        case ListedDelays(delays):
            return ListRetryDelay([to_seconds(delay) for delay in delays])


def _maybe_duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else from_seconds(seconds)


def _maybe_seconds(duration: Duration | None) -> float | None:
    return None if duration is None else to_seconds(duration)
