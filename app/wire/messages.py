"""Messages in the requests and responses of receive, browse and edit."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.instant import to_milliseconds
from app.domain.message import MAX_BATCH_COUNT, MAX_RECEIVE_COUNT, Message, MessageState
from app.domain.settlement import LockToken
from app.wire.field_types import (
    DateTime,
    DelaySeconds,
    Filter,
    Id,
    LockSeconds,
    Page,
    Priority,
    ReceiveCount,
    SequenceNumber,
    StateName,
    WaitSeconds,
)
from app.wire.message_fields import MessageView, ReceivedMessage, message_view, received_message
from app.wire.properties import PropertyChanges
from app.wire.settlements import RawSettlement, SettlementResult
from app.wire.times import maybe_to_wire, to_wire

SequenceNumbers: TypeAlias = Annotated[
    list[SequenceNumber],
    msgspec.Meta(
        min_length=1, max_length=MAX_RECEIVE_COUNT, description="Deferred messages to receive; each number only once."
    ),
]

NO_LOCK = ""
"""The lock token of a message that was received and deleted."""


ReceiveMode: TypeAlias = Literal["peek_lock", "receive_and_delete"]
ReceiveSource: TypeAlias = Literal["queue", "dead_letter"]


class ReceiveMessages(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a receive. `settlements` are carried out first, in the same request."""

    max_messages: ReceiveCount = 1
    wait_seconds: WaitSeconds | None = None
    lock_seconds: LockSeconds | None = None
    mode: ReceiveMode = "peek_lock"
    source: ReceiveSource = "queue"
    sequence_numbers: SequenceNumbers | None = None
    receiver_id: Id | None = None
    filter: Filter | None = None
    group_id: Annotated[Id, msgspec.Meta(description="Receive messages of this group alone.")] | None = None
    settlements: Annotated[list[RawSettlement], msgspec.Meta(max_length=MAX_BATCH_COUNT)] | None = None
    check_more: bool = False


class ReceiveRaw(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a raw receive, which gets at most one message."""

    wait_seconds: WaitSeconds | None = None
    lock_seconds: LockSeconds | None = None
    mode: ReceiveMode = "peek_lock"
    source: ReceiveSource = "queue"
    receiver_id: Id | None = None
    filter: Filter | None = None
    group_id: Annotated[Id, msgspec.Meta(description="Receive a message of this group alone.")] | None = None


class ReceivedMessages(msgspec.Struct, omit_defaults=True):
    """Received messages, in order; `settled` has the results of the settlements in the same request.

    `has_more` answers `check_more`.
    """

    messages: list[ReceivedMessage]
    settled: list[SettlementResult] | None = None
    has_more: bool | None = None


class RecoverMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Whose locked messages to deliver again: those that were received with this `receiver_id`."""

    receiver_id: Id
    max_messages: ReceiveCount = MAX_RECEIVE_COUNT
    count: bool = True


class RecoveredMessages(msgspec.Struct):
    """The receiver's messages under new lock tokens, in order."""

    messages: list[ReceivedMessage]


class BrowseMessages(Page):
    """Which messages to browse: in these states (default: all) and matched by the filter."""

    state: list[StateName] = msgspec.field(default_factory=list[StateName])
    filter: Filter | None = None


class MessagePage(msgspec.Struct):
    """Messages in their current state, by sequence number; `next_cursor` is null on the last page.

    Any page may be short or empty, because its size is limited and a filter scans a limited number of messages at a
    time. Follow `next_cursor` until it is null.
    """

    items: list[MessageView]
    next_cursor: str | None


class EditMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to an unlocked message; omitted fields stay unchanged.

    null makes the message due now (`available_at`, `delay_seconds`), resets `priority` to its default, or removes a
    property or all properties.
    """

    available_at: DateTime | UnsetType | None = UNSET
    delay_seconds: DelaySeconds | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    properties: PropertyChanges | UnsetType = UNSET


def received_messages(messages: Sequence[Message], monotonic: Callable[[], float]) -> list[ReceivedMessage]:
    """Build the JSON of received messages, with their lock tokens. One without a lock has ended with its delivery.

    The remaining lock times are computed last, because encoding bodies takes time.
    """
    views = [_received(message) for message in messages]
    now = monotonic()
    for message, view in zip(messages, views, strict=True):
        remaining = message.lock_remaining(now)
        view.lock_remaining_ms = 0 if remaining is None else to_milliseconds(remaining)
    return views


def _received(message: Message) -> ReceivedMessage:
    if message.lock_token is not None and message.locked_until is not None:
        token = LockToken(message.sequence_number, message.lock_token)
        return received_message(message, str(token), to_wire(message.locked_until))
    view = received_message(message, NO_LOCK, to_wire(message.last_delivered_at or message.read_at))
    view.state = "ended"
    return view


def browsed_view(message: Message) -> MessageView:
    """Build the JSON of a message for callers with the browse right: with its receiver and the end of its lock, but without
    the token."""
    view = message_view(message)
    if message.state is MessageState.LOCKED:
        view.receiver_id = message.receiver_id
        view.locked_until = maybe_to_wire(message.locked_until)
    return view
