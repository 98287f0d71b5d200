"""Messages: drafts from senders, stored messages, and their states."""

from enum import IntEnum, StrEnum
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from app.domain.instant import Duration, Instant, remaining
from app.domain.refusals import invalid_at

MIN_PRIORITY = 0
MAX_PRIORITY = 9
DEFAULT_PRIORITY = 4

MAX_ID_LENGTH = 128
MAX_TEXT_LENGTH = 1024
MAX_PROPERTIES = 64
MAX_PROPERTIES_BYTES = 32 << 10
TOO_MANY_PROPERTIES = f"A message has at most {MAX_PROPERTIES} properties in {MAX_PROPERTIES_BYTES} bytes of JSON."
MAX_FILTER_BYTES = 1 << 10
MAX_REASON_LENGTH = 128
MAX_DESCRIPTION_LENGTH = 4096

MAX_RECEIVE_COUNT = 1000
MAX_BATCH_COUNT = 1000


def check_properties(count: int, encoded_bytes: int, pointer: str) -> None:
    """Refuse with `InvalidRequest` more properties, or more bytes of JSON, than a message may have."""
    if count > MAX_PROPERTIES or encoded_bytes > MAX_PROPERTIES_BYTES:
        raise invalid_at(pointer, TOO_MANY_PROPERTIES)


class MessageState(IntEnum):
    """The state of a message. The numbers are stored; 6 is reserved for messages of an open transaction.

    A blocked message would be available if its group had not as many messages in flight as its queue allows.
    """

    AVAILABLE = 1
    LOCKED = 2
    SCHEDULED = 3
    DEFERRED = 4
    DEAD_LETTERED = 5
    BLOCKED = 7

    @property
    def label(self) -> str:
        """The name in JSON and in metrics."""
        return self.name.lower()


class BodyKind(IntEnum):
    """The kind of a body: none, a JSON value, or bytes."""

    NONE = 0
    JSON = 1
    BYTES = 2


class Durability(StrEnum):
    """`durable` is stored before the answer; `volatile` is answered first and stored right after."""

    DURABLE = "durable"
    VOLATILE = "volatile"


class MessageHeaders(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The texts that a message carries for its receivers, each with its meaning. Column `headers` stores them in this order.

    Rows, filters, headers of raw messages and pages follow from this list. Add a new text at the end, so that the digests
    of stored messages do not change.
    """

    content_type: Annotated[str | None, Meta(description="The media type of the body.")] = None
    correlation_id: Annotated[
        str | None, Meta(description="The id of what this message answers or belongs to. The broker does not read it.")
    ] = None
    subject: Annotated[str | None, Meta(description="What the message is about, for receivers and filters.")] = None
    reply_to: Annotated[str | None, Meta(description="Where to send an answer. The broker does not read it.")] = None
    to: Annotated[str | None, Meta(description="Whom the message is for. The broker does not read it.")] = None
    traceparent: Annotated[str | None, Meta(description="The W3C trace context of the send.")] = None


NO_HEADERS = MessageHeaders()
HEADER_TEXTS = MessageHeaders.__struct_fields__
_GROUP_INDEX = HEADER_TEXTS.index("traceparent")
SENDER_TEXTS = ("message_id", *HEADER_TEXTS[:_GROUP_INDEX], "group_id", *HEADER_TEXTS[_GROUP_INDEX:])
"""The texts of an envelope, in the order in which the JSON of a message has them."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The sender's metadata, delivered unchanged.

    `properties` is the sender's JSON object as bytes, or empty. Requests are checked to have only scalar properties.
    """

    message_id: str
    headers: MessageHeaders = NO_HEADERS
    group_id: str | None = None
    properties: bytes = b""

    def text(self, name: str) -> str | None:
        """Return one of the `SENDER_TEXTS`."""
        return getattr(self.headers if name in HEADER_TEXTS else self, name)


class Draft(msgspec.Struct, frozen=True):
    """A checked message that is not stored yet, with the defaults of its queue applied.

    At most one of `available_at` and `delay` is set. A message due later than the store's now is scheduled. A message
    that is already due gets its position as if neither was set. `duplicate_window` is the queue's window for
    recognising a repeated `message_id`, or 0. `is_in_group` if the queue limits how many messages of its group are in
    flight. `keeps_history` if the queue records what happens to its messages. `offer_retention` is how long the outcome
    is kept for a sender that waits for it; 0 if none waits. Drafts with one `shared_body_id` have the same body, which is
    stored once.
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
    is_in_group: bool = False
    keeps_history: bool = False
    offer_retention: Duration = 0
    shared_body_id: str | None = None


class Receipt(msgspec.Struct, frozen=True):
    """The result of storing one draft; for a duplicate it describes the message that is already stored.

    `state` is None if that message has ended since.
    """

    sequence_number: int
    message_id: str
    enqueued_at: Instant
    state: MessageState | None
    duplicate: bool = False


class Message(msgspec.Struct, frozen=True):
    """A stored message. `lock_token` (16 bytes) and `locked_until` are set while it is locked.

    `home_state` is the state to which a release returns a locked message. `first_delivered_at` is None while
    `delivery_count` is 0: before a delivery, and after a redrive. `read_at` is the store's clock when the row was read.
    `read_started_at` is this process's monotonic clock, in seconds, before the statement was sent; it is None if the read
    does not report a lock. `is_offered` if the sender waits for the settlement, and the message lives only for
    that.
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
    first_delivered_at: Instant | None
    last_delivered_at: Instant | None
    last_failure: str | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: Instant | None
    read_at: Instant
    read_started_at: float | None = None
    is_offered: bool = False

    def lock_remaining(self, now: float) -> Duration | None:
        """Return how long the lock certainly lasts from `now` on the monotonic clock, or None if unknown.

        The store read its clock after `read_started_at`, so the elapsed time is overestimated and never underestimated.
        """
        if self.locked_until is None or self.read_started_at is None:
            return None
        return remaining(self.locked_until - self.read_at, self.read_started_at, now)

    @property
    def etag(self) -> str:
        """The ETag: a digest of every field of the message that can change.

        A store compares the same fields before it edits or cancels a message, which is not locked then.
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
            self.locked_until,
            self.envelope.properties,
        )
        return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


class SelectedMessage(msgspec.Struct, frozen=True):
    """A summary of a selected message, with the same small size for large and small messages."""

    sequence_number: int
    queue_id: int
    state: MessageState
    priority: int
    available_at: Instant
    lock_token: bytes | None
    weight: int


class MessageMetadata(msgspec.Struct, frozen=True):
    """A message without its body, for selection among many messages."""

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
    first_delivered_at: Instant | None
    last_failure: str | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: Instant | None
