"""Messages in send requests, and their results."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from app.domain.instant import Instant, from_seconds
from app.domain.message import (
    DEFAULT_PRIORITY,
    MAX_BATCH_COUNT,
    BodyKind,
    Durability,
    Envelope,
    MessageHeaders,
    Receipt,
)
from app.domain.refusals import invalid_at
from app.domain.sending import NewMessage
from app.domain.settlement import Outcome
from app.domain.synchronous_send import MAX_WAIT_SECONDS, MIN_WAIT_SECONDS, Completion
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
    SentState,
    Timestamp,
    Traceparent,
    TransactionId,
    TtlSeconds,
)
from app.wire.problems import Problem
from app.wire.properties import RawProperties, decode_properties, encode_properties
from app.wire.text_bodies import bytes_of_text
from app.wire.times import to_wire
from app.wire.values import base64_bytes, due_time

DEFAULT_WAIT_SECONDS = 20.0
"""How long a synchronous send waits that does not say so."""

Delivery: TypeAlias = Literal["asynchronous", "synchronous"]
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

    body: AnyJson | msgspec.UnsetType = msgspec.UNSET
    body_base64: Base64 | None = None
    content_type: ContentType | None = None
    message_id: Id | None = None
    correlation_id: HeaderText | None = None
    subject: HeaderText | None = None
    reply_to: HeaderText | None = None
    to: HeaderText | None = None
    group_id: Id | None = None
    priority: Priority = DEFAULT_PRIORITY
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET
    ttl_seconds: TtlSeconds | None = None
    available_at: DateTime | None = None
    delay_seconds: DelaySeconds | None = None
    durability: Durability = Durability.DURABLE
    delivery: Delivery = "asynchronous"
    wait_seconds: SendWaitSeconds | None = None
    traceparent: Traceparent | None = None

    def new_message(self, traceparent: str | None = None, locate: Callable[[str], str] = str) -> NewMessage:
        """Convert to the message of the broker. Refuses with `InvalidRequest` if fields contradict each other.

        `traceparent` is the trace context of the request, for a message without its own. `locate` converts a pointer to one in the whole request.
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
                properties=self._properties(locate),
            ),
            body=body,
            body_kind=kind,
            priority=self.priority,
            available_at=self._due_at(locate),
            delay=None if self.delay_seconds is None else from_seconds(self.delay_seconds),
            ttl=None if self.ttl_seconds is None else from_seconds(self.ttl_seconds),
            durability=self.durability,
        )

    def _body_and_kind(self, locate: Callable[[str], str]) -> tuple[bytes, BodyKind]:
        if self.body_base64 is None:
            if self.body is msgspec.UNSET:
                return b"", BodyKind.NONE
            body = bytes(self.body)
            text = bytes_of_text(body, self.content_type)
            return (body, BodyKind.JSON) if text is None else (text, BodyKind.BYTES)
        if self.body is not msgspec.UNSET:
            raise invalid_at(locate("/body_base64"), "Give body or body_base64, not both.")
        return base64_bytes(self.body_base64, locate("/body_base64")), BodyKind.BYTES

    def _properties(self, locate: Callable[[str], str]) -> bytes:
        return encode_properties(decode_properties(self.properties, locate) or {}, locate("/properties"))

    def _due_at(self, locate: Callable[[str], str]) -> Instant | None:
        if self.available_at is None:
            return None
        if self.delay_seconds is not None:
            raise invalid_at(locate("/delay_seconds"), "Give available_at or delay_seconds, not both.")
        return due_time(self.available_at, locate("/available_at"))


class SendMessage(MessageToSend, kw_only=True):
    """A message to send alone, at once or with a transaction."""

    transaction_id: TransactionId | None = None


RawMessage: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/MessageToSend"})
]
"""A message of a batch, not decoded at first, because each may be refused separately."""


class SendBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Messages sent in one request: all or none, unless `atomic` is false. A batch in a transaction is atomic."""

    messages: Annotated[list[RawMessage], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]
    atomic: bool = True
    transaction_id: TransactionId | None = None


class SentMessage(msgspec.Struct):
    """A stored message, or one that waits for the commit of a transaction."""

    sequence_number: int | None
    message_id: str
    enqueued_at: Timestamp | None
    state: SentState
    duplicate: bool


class SentResult(SentMessage, tag_field="result", tag="sent"):
    """One stored message of a batch."""


Sent = TypeVar("Sent", bound=SentMessage)


class RefusedSend(msgspec.Struct, tag_field="result", tag="refused"):
    """One refused message of a batch, and why."""

    problem: Problem


SendResult: TypeAlias = SentResult | RefusedSend


class SendResults(msgspec.Struct):
    """The result of each message, in order."""

    results: list[SendResult]


class AcceptedMessage(msgspec.Struct):
    """An accepted volatile message, which is stored shortly after the response."""

    message_id: str
    durability: Literal["volatile"] = "volatile"


class SendAnswer(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The answer to a send. Only that to a synchronous send has `outcome`, and `reply` if the receiver gave one.

    It has every field of `SentMessage` and `AcceptedMessage`, because many clients decode all three answers as one type.
    """

    outcome: Literal["completed", "received"] | msgspec.UnsetType = msgspec.UNSET
    sequence_number: int | msgspec.UnsetType | None = msgspec.UNSET
    message_id: str
    reply: AnyJson | msgspec.UnsetType = msgspec.UNSET
    enqueued_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    state: SentState | msgspec.UnsetType = msgspec.UNSET
    duplicate: bool | msgspec.UnsetType = msgspec.UNSET
    durability: Literal["volatile"] | msgspec.UnsetType = msgspec.UNSET


def delivered_message(completion: Completion) -> SendAnswer:
    """Build the JSON of a synchronous send that was accepted."""
    return SendAnswer(
        outcome="completed" if completion.outcome is Outcome.COMPLETED else "received",
        sequence_number=completion.sequence_number,
        message_id=completion.message_id,
        reply=msgspec.UNSET if completion.reply is None else msgspec.Raw(completion.reply),
    )


def sent_message(receipt: Receipt) -> SentMessage:
    """Build the JSON of a receipt."""
    return _sent(SentMessage, receipt)


def sent_result(receipt: Receipt) -> SentResult:
    """Build the JSON of a receipt in a batch."""
    return _sent(SentResult, receipt)


def uncommitted_message(message_id: str) -> SentMessage:
    """Build the JSON of a message that waits for the commit of its transaction."""
    return SentMessage(None, message_id, None, "uncommitted", duplicate=False)


def uncommitted_result(message_id: str) -> SentResult:
    """Build the JSON of such a message in a batch."""
    return SentResult(None, message_id, None, "uncommitted", duplicate=False)


def _sent(form: type[Sent], receipt: Receipt) -> Sent:
    return form(
        receipt.sequence_number,
        receipt.message_id,
        to_wire(receipt.enqueued_at),
        "ended" if receipt.state is None else STATE_NAMES[receipt.state],
        receipt.duplicate,
    )
