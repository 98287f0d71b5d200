"""The messages that a program sends and receives."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from msgspec import UNSET, Struct, UnsetType

from peeklock_client.generated import answers

if TYPE_CHECKING:
    # Python 3.13 is the first with defaults. Type checkers know this module even where it is not installed.
    import typing_extensions

    BodyType = typing_extensions.TypeVar("BodyType", default=Any)
else:
    BodyType = TypeVar("BodyType")

Part = TypeVar("Part")

BYTES_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to send.

    `body` is any value that msgspec encodes as JSON, also with pydantic models in it, or bytes, which are received as bytes.
    A handler that returns the message sets `queue` or `topic`. `traceparent` is the trace context of the message, by default
    that of the call that sends it. docs/http/send.md describes the other fields.
    """

    body: Any = None
    queue: str | None = None
    topic: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    content_type: str | None = None
    priority: int | None = None
    properties: Mapping[str, str | int | float | bool | None] = field(default_factory=dict[str, Any])
    ttl_seconds: float | None = None
    available_at: datetime | None = None
    delay_seconds: float | None = None
    traceparent: str | None = None


class MessageFields(TypedDict, total=False):
    """The fields of a `NewMessage` that a call takes by name."""

    message_id: str | None
    correlation_id: str | None
    subject: str | None
    reply_to: str | None
    to: str | None
    group_id: str | None
    content_type: str | None
    priority: int | None
    properties: Mapping[str, str | int | float | bool | None]
    ttl_seconds: float | None
    available_at: datetime | None
    delay_seconds: float | None
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class Message(Generic[BodyType]):
    """A message of a queue. `body` is bytes if it was sent as bytes, and otherwise the decoded JSON value.

    To a type checker, `Message` alone has a body of any type, and `Message[Order]` one of the type `Order`.
    """

    body: BodyType
    sequence_number: int
    message_id: str
    state: str
    priority: int
    enqueued_at: datetime
    available_at: datetime
    delivery_count: int
    failure_count: int
    redelivered: bool
    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    traceparent: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expires_at: datetime | None = None
    first_delivered_at: datetime | None = None
    last_failure: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_lettered_at: datetime | None = None
    receiver_id: str | None = None
    locked_until: datetime | None = None


SHARED = [name for name in Message.__dataclass_fields__ if name != "body"]
SENT = [name for name in NewMessage.__dataclass_fields__ if name not in ("body", "queue", "topic", "content_type")]


def message_of(view: answers.MessageView | answers.ReceivedMessage) -> Message[Any]:
    """Return a message as its answer describes it."""
    body = base64.b64decode(view.body_base64) if view.body_base64 is not UNSET else given(view.body)
    values = {name: value for name in SHARED if (value := getattr(view, name, UNSET)) is not UNSET}
    if isinstance(view, answers.ReceivedMessage) and not given(view.lock_token):
        values.pop("locked_until", None)  # the message was received and deleted
    return Message(body, **values)


def given(value: Part | UnsetType) -> Part | None:
    """Return an optional value of an answer, None if it is missing."""
    return None if value is UNSET else value


Entry = TypeVar("Entry", bound=Struct)


def entry(kind: type[Entry], message: NewMessage, **more: Any) -> Entry:
    """Return a message as the entry of a request: alone, in a batch, or of a transaction."""
    values: dict[str, Any] = {name: value for name in SENT if (value := getattr(message, name)) is not None}
    if not message.properties:
        del values["properties"]
    if isinstance(message.body, bytes | bytearray):
        values["body_base64"] = base64.b64encode(message.body).decode()
        values["content_type"] = message.content_type or BYTES_TYPE
    else:
        values["body"] = message.body
        values |= {} if message.content_type is None else {"content_type": message.content_type}
    return kind(**values, **more)


def new_message(body: Any, fields: MessageFields) -> NewMessage:
    """Return the message to send for a call. `body` is a value, or a `NewMessage` or `CloudEvent` without `fields`."""
    if hasattr(body, "to_message"):
        body = body.to_message()
    if not isinstance(body, NewMessage):
        return NewMessage(body, **fields)
    if fields:
        raise TypeError("Set the fields on the NewMessage or CloudEvent itself, not in the call.")
    return body
