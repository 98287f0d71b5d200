"""A message for tests of the rules: each case changes single fields."""

from typing import Any

from msgspec.structs import replace

from app.domain.message import BodyKind, Envelope, Message, MessageMetadata, MessageState

DEFAULT_MESSAGE = Message(
    sequence_number=7,
    queue_id=3,
    envelope=Envelope("m"),
    body=b"",
    body_kind=BodyKind.NONE,
    state=MessageState.AVAILABLE,
    home_state=MessageState.AVAILABLE,
    priority=4,
    enqueued_at=100,
    available_at=200,
    expires_at=None,
    delivery_count=0,
    failure_count=0,
    lock_token=None,
    locked_until=None,
    lock_generation=0,
    receiver_id=None,
    first_delivered_at=None,
    last_delivered_at=None,
    last_failure=None,
    dead_letter_reason=None,
    dead_letter_description=None,
    dead_lettered_at=None,
    read_at=0,
)


def message(**changes: Any) -> Message:
    """Return an available message with these fields changed."""
    return replace(DEFAULT_MESSAGE, **changes)


def metadata(*, body_bytes: int, envelope: Envelope) -> MessageMetadata:
    """Return the metadata of such a message."""
    return MessageMetadata(
        sequence_number=DEFAULT_MESSAGE.sequence_number,
        queue_id=DEFAULT_MESSAGE.queue_id,
        envelope=envelope,
        body_bytes=body_bytes,
        state=DEFAULT_MESSAGE.state,
        priority=DEFAULT_MESSAGE.priority,
        enqueued_at=DEFAULT_MESSAGE.enqueued_at,
        available_at=DEFAULT_MESSAGE.available_at,
        expires_at=None,
        delivery_count=0,
        failure_count=0,
        lock_token=None,
        first_delivered_at=None,
        last_failure=None,
        dead_letter_reason=None,
        dead_letter_description=None,
        dead_lettered_at=None,
    )
