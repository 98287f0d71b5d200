"""The order of delivery, and the claims of receivers."""

from typing import TypeAlias

import msgspec

from app.domain.instant import Duration, Instant
from app.domain.message import MAX_PRIORITY, Message, MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import MAX_LOCK_DURATION, QueueSettings
from app.domain.weight import MAX_RESPONSE_BYTES


class Claim(msgspec.Struct, frozen=True):
    """A request for at most `max_messages` of one queue, each locked for `lock_duration`.

    Together they weigh at most `max_bytes`, unless it is a single message.

    `source` is the state to claim from: available (the queue), dead_lettered (its dead-letter queue) or deferred.
    `keeps_history` if the queue may record its deliveries.
    """

    queue_id: int
    max_messages: int
    lock_duration: Duration
    receiver_id: str | None = None
    source: MessageState = MessageState.AVAILABLE
    max_bytes: int = MAX_RESPONSE_BYTES
    keeps_history: bool = False


class Recovery(msgspec.Struct, frozen=True):
    """A request for at most `max_messages` that a receiver holds in a queue, to lock them again for `lock_duration`.

    Together they weigh at most `max_bytes`, unless it is a single message. `counted` is false for a receiver that never got
    the earlier deliveries, which were counted: the new ones are then not counted.
    """

    queue_id: int
    receiver_id: str
    max_messages: int
    lock_duration: Duration
    counted: bool = True
    max_bytes: int = MAX_RESPONSE_BYTES


def lock_end(locked_at: Instant, duration: Duration, expires_at: Instant | None, source: MessageState) -> Instant:
    """Return when a new lock ends.

    A lock that does not end by time ends when its message expires (S1.47). Dead-lettered messages do not expire. The SQL
    of claims restates this rule; a test compares the two.
    """
    end = locked_at + duration
    if duration <= MAX_LOCK_DURATION or expires_at is None or source is MessageState.DEAD_LETTERED:
        return end
    return min(end, expires_at)


def wait_key_of(queue_id: int, source: MessageState) -> int:
    """Return the wait key: receivers of a queue and those of its dead-letter queue wait separately."""
    return -queue_id if source is MessageState.DEAD_LETTERED else queue_id


DeliveryPosition: TypeAlias = tuple[int, Instant, int]
"""The position of a message in the order of delivery; lower positions are delivered first."""

START_POSITION: DeliveryPosition = (-MAX_PRIORITY - 1, 0, 0)
"""A position before every message."""


def delivery_position(message: Message | SelectedMessage) -> DeliveryPosition:
    """Return the sort key of available messages: priority, then `available_at`, then sequence number.

    The store restates this in SQL; a test compares the two over random messages (S1.79, S1.85,
    S1.88, S2.14). Dead-lettered messages are ordered by sequence number alone.
    """
    return (-message.priority, message.available_at, message.sequence_number)


def is_redelivered(message: Message | MessageMetadata) -> bool:
    """Return whether the message was delivered before, not counting a delivery in progress."""
    return message.delivery_count > int(message.state is MessageState.LOCKED)


def is_deliverable(message: Message, now: Instant) -> bool:
    """Return whether the message is available and not past its time to live.

    The state alone says that it is due, because a clock may be set back.
    """
    return message.state is MessageState.AVAILABLE and (message.expires_at is None or message.expires_at > now)


def time_to_live(requested: Duration | None, settings: QueueSettings) -> Duration | None:
    """Return the shorter of the sender's time to live and the queue's default."""
    default = settings.default_ttl
    if requested is None or default is None:
        return default if requested is None else requested
    return min(requested, default)
