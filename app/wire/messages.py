"""Messages as senders write them and receivers read them."""

import base64
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.instant import from_seconds, to_milliseconds
from app.domain.message import (
    DEFAULT_PRIORITY,
    LARGEST_BATCH,
    LARGEST_PROPERTIES,
    LARGEST_RECEIVE,
    BodyKind,
    Durability,
    Envelope,
    Message,
    MessageState,
    Receipt,
)
from app.domain.refusals import Fault, InvalidRequest
from app.domain.sending import Letter
from app.domain.settlement import LockToken
from app.wire.locks import Settlement, SettlementResult
from app.wire.problems import Problem
from app.wire.shapes import (
    DelaySeconds,
    Filter,
    HeaderText,
    Id,
    LockSeconds,
    Moment,
    Priority,
    Properties,
    ReceiveCount,
    SequenceNumber,
    TtlSeconds,
    WaitSeconds,
)
from app.wire.times import from_wire, maybe_to_wire, to_wire

_encode = msgspec.json.Encoder().encode


class SendMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message on its way in. `body` is any JSON value, `body_base64` bytes; at most one of the two.

    At most one of `available_at` and `delay_seconds` schedules it.
    """

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: str | None = None
    content_type: HeaderText | None = None
    message_id: Id | None = None
    correlation_id: HeaderText | None = None
    subject: HeaderText | None = None
    reply_to: HeaderText | None = None
    to: HeaderText | None = None
    group_id: Id | None = None
    priority: Priority = DEFAULT_PRIORITY
    properties: Properties | None = None
    ttl_seconds: TtlSeconds | None = None
    available_at: Moment | None = None
    delay_seconds: DelaySeconds | None = None
    durability: Durability = Durability.DURABLE

    def letter(self, traceparent: str | None = None, pointer: str = "") -> Letter:
        """The message as the broker takes it; refuses with `InvalidRequest` where fields contradict each other."""
        if self.available_at is not None and self.delay_seconds is not None:
            raise _fault(f"{pointer}/delay_seconds", "Give available_at or delay_seconds, not both.")
        body, kind = self._content(pointer)
        return Letter(
            envelope=Envelope(
                message_id=self.message_id or "",
                content_type=self.content_type,
                correlation_id=self.correlation_id,
                subject=self.subject,
                reply_to=self.reply_to,
                to=self.to,
                group_id=self.group_id,
                traceparent=traceparent,
                properties=property_bytes(self.properties, f"{pointer}/properties"),
            ),
            body=body,
            body_kind=kind,
            priority=self.priority,
            available_at=None if self.available_at is None else from_wire(self.available_at),
            delay=None if self.delay_seconds is None else from_seconds(self.delay_seconds),
            ttl=None if self.ttl_seconds is None else from_seconds(self.ttl_seconds),
            durability=self.durability,
        )

    def _content(self, pointer: str) -> tuple[bytes, BodyKind]:
        if self.body_base64 is None:
            if self.body is msgspec.UNSET:
                return b"", BodyKind.NONE
            return bytes(self.body), BodyKind.JSON
        if self.body is not msgspec.UNSET:
            raise _fault(f"{pointer}/body_base64", "Give body or body_base64, not both.")
        try:
            return base64.b64decode(self.body_base64, validate=True), BodyKind.BYTES
        except ValueError:
            raise _fault(f"{pointer}/body_base64", "This is not base64.") from None


class SendBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Messages sent in one call: all or none, unless `atomic` is false."""

    messages: Annotated[list[SendMessage], msgspec.Meta(min_length=1, max_length=LARGEST_BATCH)]
    atomic: bool = True


class SentMessage(msgspec.Struct):
    """A message that is stored; `duplicate` where it already was."""

    sequence_number: int
    message_id: str
    enqueued_at: str
    state: str
    duplicate: bool


class SentResult(SentMessage, tag_field="result", tag="sent"):
    """One message of a batch that is stored."""


class RefusedSend(msgspec.Struct, tag_field="result", tag="refused"):
    """One message of a batch that was not taken, and why."""

    problem: Problem


SendResult: TypeAlias = SentResult | RefusedSend


class SendResults(msgspec.Struct):
    """What became of each message, in order."""

    results: list[SendResult]


class AcceptedMessage(msgspec.Struct):
    """A volatile message that will be stored in a moment."""

    message_id: str
    durability: Literal["volatile"] = "volatile"


class ReceiveMessages(msgspec.Struct, forbid_unknown_fields=True):
    """What a receiver asks for. `settlements` are carried out first, in the same call."""

    max_messages: ReceiveCount = 1
    wait_seconds: WaitSeconds | None = None
    lock_seconds: LockSeconds | None = None
    mode: Literal["peek_lock", "receive_and_delete"] = "peek_lock"
    source: Literal["queue", "dead_letter"] = "queue"
    sequence_numbers: Annotated[list[SequenceNumber], msgspec.Meta(min_length=1, max_length=LARGEST_RECEIVE)] | None = None
    receiver_id: Id | None = None
    filter: Filter | None = None
    settlements: Annotated[list[Settlement], msgspec.Meta(max_length=LARGEST_BATCH)] | None = None


class MessageView(msgspec.Struct, omit_defaults=True):
    """A message as receivers and browsers see it; fields without a value are left out."""

    sequence_number: int
    message_id: str
    state: str
    priority: int
    enqueued_at: str
    available_at: str
    delivery_count: int
    failure_count: int
    redelivered: bool
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    traceparent: str | None = None
    properties: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    expires_at: str | None = None
    last_failure: str | None = None
    lock_token: str | None = None
    locked_until: str | None = None
    lock_remaining_ms: int | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_lettered_at: str | None = None


class ReceivedMessages(msgspec.Struct, omit_defaults=True):
    """Messages under lock, in order; `settled` answers the settlements of the same call."""

    messages: list[MessageView]
    settled: list[SettlementResult] | None = None


class MessagePage(msgspec.Struct):
    """Messages as they stand; `next_cursor` is null at the end."""

    items: list[MessageView]
    next_cursor: str | None


def sent(receipt: Receipt) -> SentMessage:
    """A receipt on the wire."""
    return SentMessage(
        receipt.sequence_number,
        receipt.message_id,
        to_wire(receipt.enqueued_at),
        receipt.state.label,
        receipt.duplicate,
    )


def received(message: Message) -> MessageView:
    """A message under lock, with the token that settles it."""
    shown = view(message)
    if message.lock_token is not None and message.locked_until is not None:
        shown.lock_token = str(LockToken(message.sequence_number, message.lock_token))
        shown.locked_until = to_wire(message.locked_until)
        shown.lock_remaining_ms = to_milliseconds(message.locked_until - message.read_at)
    return shown


def view(message: Message) -> MessageView:
    """A message as anybody may see it who may browse: without its lock token."""
    envelope = message.envelope
    shown = MessageView(
        sequence_number=message.sequence_number,
        message_id=envelope.message_id,
        state=message.state.label,
        priority=message.priority,
        enqueued_at=to_wire(message.enqueued_at),
        available_at=to_wire(message.available_at),
        delivery_count=message.delivery_count,
        failure_count=message.failure_count,
        redelivered=message.delivery_count > int(message.state is MessageState.LOCKED),
        content_type=envelope.content_type,
        correlation_id=envelope.correlation_id,
        subject=envelope.subject,
        reply_to=envelope.reply_to,
        to=envelope.to,
        group_id=envelope.group_id,
        traceparent=envelope.traceparent,
        expires_at=maybe_to_wire(message.expires_at),
        last_failure=message.last_failure,
        dead_letter_reason=message.dead_letter_reason,
        dead_letter_description=message.dead_letter_description,
        dead_lettered_at=maybe_to_wire(message.dead_lettered_at),
    )
    if envelope.properties:
        shown.properties = msgspec.Raw(envelope.properties)
    if message.body_kind is BodyKind.JSON:
        shown.body = msgspec.Raw(message.body)
    elif message.body_kind is BodyKind.BYTES:
        shown.body_base64 = base64.b64encode(message.body).decode()
    return shown


def views(messages: Sequence[Message]) -> list[MessageView]:
    """`view` of each."""
    return [view(message) for message in messages]


def property_bytes(properties: dict[str, str | int | float | bool | None] | None, pointer: str) -> bytes:
    """Properties as they are stored; empty where there are none. Refuses with `InvalidRequest` above the limit."""
    if not properties:
        return b""
    encoded = _encode(properties)
    if len(encoded) > LARGEST_PROPERTIES:
        raise _fault(pointer, f"Properties have at most {LARGEST_PROPERTIES} bytes of JSON.")
    return encoded


def _fault(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(faults=[Fault(pointer, detail)])
