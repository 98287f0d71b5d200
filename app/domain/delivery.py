"""Who is next, and what a receiver asks for."""

from dataclasses import dataclass
from typing import TypeAlias

from app.domain.instant import Duration, Instant
from app.domain.message import MAX_PRIORITY, Message, MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import QueueSettings
from app.domain.weight import MAX_RESPONSE_BYTES


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish for at most `most` messages of one queue, each locked for `lock_duration`.

    Together they weigh at most `budget` bytes, or it is only one message.

    `source` is the state to take from: available (the queue) or dead_lettered (its dead-letter queue).
    """

    queue_id: int
    max_messages: int
    lock_duration: Duration
    receiver_id: str | None = None
    source: MessageState = MessageState.AVAILABLE
    max_bytes: int = MAX_RESPONSE_BYTES


def wait_key_of(queue_id: int, source: MessageState) -> int:
    """Where those wait who receive from this state: for the queue, or apart from them for its dead-letter queue."""
    return -queue_id if source is MessageState.DEAD_LETTERED else queue_id


DeliveryPosition: TypeAlias = tuple[int, Instant, int]
"""Where a message stands in the order of delivery; the lower is handed out first."""

START_POSITION: DeliveryPosition = (-MAX_PRIORITY - 1, 0, 0)
"""Where no message stands, and behind which all do."""


def delivery_position(message: Message | SelectedMessage) -> DeliveryPosition:
    """The key by which available messages are handed out: priority, then since when, then number.

    The store restates this in SQL; a test compares the two over random messages (S1.79, S1.85,
    S1.88, S2.14). Dead-lettered messages go by sequence number alone.
    """
    return (-message.priority, message.available_at, message.sequence_number)


def is_redelivered(message: Message | MessageMetadata) -> bool:
    """Whether it was handed out before the delivery that it is in, if it is in one."""
    return message.delivery_count > int(message.state is MessageState.LOCKED)


def is_deliverable(message: Message, now: Instant) -> bool:
    """Available, and not past its time to live. The state alone says that it is due; a clock may be set back."""
    return message.state is MessageState.AVAILABLE and (message.expires_at is None or message.expires_at > now)


def time_to_live(requested: Duration | None, settings: QueueSettings) -> Duration | None:
    """The shorter of what the sender asked for and what the queue allows by default."""
    lives = [ttl for ttl in (requested, settings.default_ttl) if ttl is not None]
    return min(lives, default=None)
