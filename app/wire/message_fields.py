"""The fields of a message, as requests send them and as answers show them."""

import base64
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.delivery import is_redelivered
from app.domain.instant import Instant, from_seconds
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Durability, Envelope, Message, MessageHeaders
from app.domain.refusals import invalid_at
from app.domain.sending import NewMessage
from app.domain.synchronous_send import MAX_WAIT_SECONDS, MIN_WAIT_SECONDS
from app.wire.field_types import (
    STATE_NAMES,
    AnyJson,
    Base64,
    ContentType,
    DateTime,
    DelaySeconds,
    HeaderText,
    Id,
    Priority,
    Timestamp,
    Traceparent,
    TtlSeconds,
    ViewedState,
)
from app.wire.properties import RawProperties, StoredProperties, decode_properties, encode_properties
from app.wire.text_bodies import bytes_of_text, text_of
from app.wire.times import maybe_to_wire, to_wire
from app.wire.values import base64_bytes, due_time

DEFAULT_WAIT_SECONDS = 20.0
"""How long a synchronous send waits that does not say so."""

DeliveryMode: TypeAlias = Literal["asynchronous", "synchronous"]
SendWaitSeconds: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=MIN_WAIT_SECONDS, le=MAX_WAIT_SECONDS, description="How long to wait for the settlement; the server caps it."
    ),
]


class MessageToSend(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A message to send. `body` is any JSON value or text, `body_base64` is bytes; at most one of them.

    `available_at` or `delay_seconds` schedules it; at most one of them. The server creates a missing `message_id`.
    With the delivery `synchronous` the sender waits up to `wait_seconds` until a receiver has settled the message.
    """

    body: AnyJson | UnsetType = UNSET
    body_base64: Base64 | None = None
    content_type: ContentType | None = None
    message_id: Id | None = None
    correlation_id: HeaderText | None = None
    subject: HeaderText | None = None
    reply_to: HeaderText | None = None
    to: HeaderText | None = None
    group_id: Id | None = None
    priority: Priority = DEFAULT_PRIORITY
    properties: RawProperties | UnsetType = UNSET
    ttl_seconds: TtlSeconds | None = None
    available_at: DateTime | None = None
    delay_seconds: DelaySeconds | None = None
    durability: Durability = Durability.DURABLE
    delivery: DeliveryMode = "asynchronous"
    wait_seconds: SendWaitSeconds | None = None
    traceparent: Traceparent | None = None

    def new_message(self, traceparent: str | None = None, locate: Callable[[str], str] = str) -> NewMessage:
        """Convert to the message of the broker. Refuses with `InvalidRequest` if fields contradict each other.

        `traceparent` is the trace context of the request, for a message without its own. `locate` converts a pointer to one
        in the whole request.
        """
        if self.delivery == "synchronous":
            raise invalid_at(
                locate("/delivery"), "Only a send of one message, with a JSON body, waits for its settlement."
            )
        if self.wait_seconds is not None:
            raise invalid_at(locate("/wait_seconds"), "Only a synchronous send waits.")
        return self._message(traceparent, locate)

    def synchronous_message(self, traceparent: str | None) -> tuple[NewMessage, float]:
        """Convert a synchronous send to the message of the broker and how long to wait. Refuses as `new_message` does."""
        wait_seconds = DEFAULT_WAIT_SECONDS if self.wait_seconds is None else self.wait_seconds
        return self._message(traceparent, str), wait_seconds

    def _message(self, traceparent: str | None, locate: Callable[[str], str]) -> NewMessage:
        body, kind = self._body_and_kind(locate)
        properties = b""
        if self.properties is not UNSET:
            properties = encode_properties(decode_properties(self.properties, locate) or {}, locate("/properties"))
        return NewMessage(
            envelope=Envelope(
                message_id=self.message_id or "",
                headers=MessageHeaders(
                    content_type=self.content_type,
                    correlation_id=self.correlation_id,
                    subject=self.subject,
                    reply_to=self.reply_to,
                    to=self.to,
                    traceparent=self.traceparent or traceparent,
                ),
                group_id=self.group_id,
                properties=properties,
            ),
            body=body,
            body_kind=kind,
            priority=self.priority,
            available_at=None if self.available_at is None else self._due_at(self.available_at, locate),
            delay=None if self.delay_seconds is None else from_seconds(self.delay_seconds),
            ttl=None if self.ttl_seconds is None else from_seconds(self.ttl_seconds),
            durability=self.durability,
        )

    def _body_and_kind(self, locate: Callable[[str], str]) -> tuple[bytes, BodyKind]:
        if self.body_base64 is None:
            if self.body is UNSET:
                return b"", BodyKind.NONE
            body = bytes(self.body)
            text = bytes_of_text(body, self.content_type) if self.content_type else None
            return (body, BodyKind.JSON) if text is None else (text, BodyKind.BYTES)
        if self.body is not UNSET:
            raise invalid_at(locate("/body_base64"), "Give body or body_base64, not both.")
        return base64_bytes(self.body_base64, locate("/body_base64")), BodyKind.BYTES

    def _due_at(self, available_at: datetime, locate: Callable[[str], str]) -> Instant:
        if self.delay_seconds is not None:
            raise invalid_at(locate("/delay_seconds"), "Give available_at or delay_seconds, not both.")
        return due_time(available_at, locate("/available_at"))


class MessageInQueue(msgspec.Struct, omit_defaults=True):
    """The fields that browsed and received messages share; fields without a value are omitted."""

    sequence_number: int
    message_id: str
    state: ViewedState
    priority: Priority
    enqueued_at: Timestamp
    available_at: Timestamp
    delivery_count: int
    failure_count: int
    redelivered: bool
    body: AnyJson | UnsetType = UNSET
    body_base64: Base64 | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    traceparent: str | None = None
    properties: StoredProperties | UnsetType = UNSET
    expires_at: Timestamp | None = None
    first_delivered_at: Timestamp | None = None
    last_failure: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_lettered_at: Timestamp | None = None
    delivery: Literal["synchronous"] | None = None


class MessageView(MessageInQueue, omit_defaults=True):
    """A message as browsing shows it, without its lock token; fields without a value are omitted."""

    receiver_id: str | None = None
    locked_until: Timestamp | None = None


class ReceivedMessage(MessageInQueue, omit_defaults=True, kw_only=True):
    """A received message and its lock; fields without a value are omitted.

    A message that was received and deleted has no lock: its token is empty, and no time remains.
    """

    lock_token: str
    locked_until: Timestamp
    lock_remaining_ms: int


Shape = TypeVar("Shape", MessageView, ReceivedMessage)


def message_view(message: Message) -> MessageView:
    """Build the JSON of a message without anything about its lock."""
    return _view(MessageView, message)


def received_message(message: Message, lock_token: str, locked_until: str) -> ReceivedMessage:
    """Build the JSON of a received message. The caller sets how long its lock remains, because encoding takes time."""
    return _view(ReceivedMessage, message, lock_token=lock_token, locked_until=locked_until, lock_remaining_ms=0)


def _view(shape: type[Shape], message: Message, **lock: Any) -> Shape:
    envelope = message.envelope
    headers = envelope.headers
    view = shape(
        sequence_number=message.sequence_number,
        message_id=envelope.message_id,
        state=STATE_NAMES[message.state],
        priority=message.priority,
        enqueued_at=to_wire(message.enqueued_at),
        available_at=to_wire(message.available_at),
        delivery_count=message.delivery_count,
        failure_count=message.failure_count,
        redelivered=is_redelivered(message),
        content_type=headers.content_type,
        correlation_id=headers.correlation_id,
        subject=headers.subject,
        reply_to=headers.reply_to,
        to=headers.to,
        group_id=envelope.group_id,
        traceparent=headers.traceparent,
        expires_at=maybe_to_wire(message.expires_at),
        first_delivered_at=maybe_to_wire(message.first_delivered_at),
        last_failure=message.last_failure,
        dead_letter_reason=message.dead_letter_reason,
        dead_letter_description=message.dead_letter_description,
        dead_lettered_at=maybe_to_wire(message.dead_lettered_at),
        delivery="synchronous" if message.is_offered else None,
        **lock,
    )
    if envelope.properties:
        view.properties = msgspec.Raw(envelope.properties)
    if message.body_kind is BodyKind.JSON:
        view.body = msgspec.Raw(message.body)
    elif message.body_kind is BodyKind.BYTES:
        text = text_of(message.body, headers.content_type)
        if text is None:
            view.body_base64 = base64.b64encode(message.body).decode()
        else:
            view.body = msgspec.Raw(msgspec.json.encode(text))
    return view
