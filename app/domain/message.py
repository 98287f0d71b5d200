"""What a message is: what a sender gives, what the store keeps, and the names of its states."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from hashlib import blake2b

from app.domain.instant import Duration, Instant, remaining

MIN_PRIORITY = 0
MAX_PRIORITY = 9
DEFAULT_PRIORITY = 4

MAX_ID_LENGTH = 128
MAX_TEXT_LENGTH = 1024
MAX_PROPERTIES = 64
MAX_PROPERTIES_BYTES = 32 << 10
MAX_FILTER_BYTES = 1 << 10
MAX_REASON_LENGTH = 128
MAX_DESCRIPTION_LENGTH = 4096

MAX_RECEIVE_COUNT = 1000
MAX_BATCH_COUNT = 1000


class MessageState(IntEnum):
    """Where a message is. The numbers are stored; 6 is kept for messages of an open transaction."""

    AVAILABLE = 1
    LOCKED = 2
    SCHEDULED = 3
    DEFERRED = 4
    DEAD_LETTERED = 5

    @property
    def label(self) -> str:
        """The word used on the wire and in metrics."""
        return self.name.lower()


class BodyKind(IntEnum):
    """How a body was given: not at all, as a JSON value, or as bytes."""

    NONE = 0
    JSON = 1
    BYTES = 2


class Durability(StrEnum):
    """`durable` is stored before the answer; `volatile` is answered first and stored right after."""

    DURABLE = "durable"
    VOLATILE = "volatile"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a sender writes on the outside; carried unchanged to every delivery.

    `properties` is the sender's JSON object as bytes (scalars only, checked at the door), or empty.
    """

    message_id: str
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    traceparent: str | None = None
    properties: bytes = b""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message on its way into a queue, checked and with every default of the queue applied.

    At most one of `available_at` and `delay` is set. A message due later than the store's now is
    scheduled; one that is due already takes its place in the order as if it had none of the two.
    `duplicate_window` is the queue's window for recognising a repeated `message_id`, 0 for none.
    """

    queue_id: int
    envelope: Envelope
    body: bytes
    body_kind: BodyKind
    priority: int = DEFAULT_PRIORITY
    available_at: Instant | None = None
    delay: Duration | None = None
    ttl: Duration | None = None
    duplicate_window: Duration = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the store answers to one draft; for a duplicate it describes the message already there."""

    sequence_number: int
    message_id: str
    enqueued_at: Instant
    state: MessageState
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message. `lock_token` (16 bytes) and `locked_until` are set while it is locked.

    `home_state` is where a release returns a locked message. `read_at` is the store's clock when the row was read, and
    `read_after` this process's monotonic clock, in seconds, before the store was asked; None where no lock is answered
    from what was read.
    """

    sequence_number: int
    queue_id: int
    envelope: Envelope
    body: bytes
    body_kind: BodyKind
    state: MessageState
    home_state: MessageState
    priority: int
    enqueued_at: Instant
    available_at: Instant
    expires_at: Instant | None
    delivery_count: int
    failure_count: int
    lock_token: bytes | None
    locked_until: Instant | None
    lock_generation: int
    receiver_id: str | None
    last_delivered_at: Instant | None
    last_failure: str | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: Instant | None
    read_at: Instant
    read_started_at: float | None = None

    def lock_remaining(self, now: float) -> Duration | None:
        """What is certainly left of the lock at `now` of the monotonic clock; None where it is not known.

        The store read its clock after it was asked, so the time that has passed since then is counted too long and never
        too short.
        """
        if self.locked_until is None or self.read_started_at is None:
            return None
        return remaining(self.locked_until - self.read_at, self.read_started_at, now)

    @property
    def etag(self) -> str:
        """This message as it stands, of all that can change about it; its ETag.

        A store compares the same before it edits or cancels a message (`hold_seen`).
        """
        parts = (
            self.sequence_number,
            self.queue_id,
            self.state.value,
            self.priority,
            self.available_at,
            self.delivery_count,
            self.failure_count,
            self.lock_generation,
            self.envelope.properties,
        )
        return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class SelectedMessage:
    """What is kept of a message that was chosen among many: as little of a large one as of a small one."""

    sequence_number: int
    queue_id: int
    state: MessageState
    priority: int
    available_at: Instant
    lock_token: bytes | None
    weight: int


@dataclass(frozen=True, slots=True)
class MessageMetadata:
    """A message without its body: what whoever chooses among many needs of each."""

    sequence_number: int
    queue_id: int
    envelope: Envelope
    body_bytes: int
    state: MessageState
    priority: int
    enqueued_at: Instant
    available_at: Instant
    expires_at: Instant | None
    delivery_count: int
    failure_count: int
    lock_token: bytes | None
    last_failure: str | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: Instant | None
