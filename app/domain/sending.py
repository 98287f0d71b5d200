"""Sending: turn a sender's message into a draft for a queue."""

import msgspec
from msgspec.structs import replace

from app.domain.delivery import time_to_live
from app.domain.instant import Duration, Instant
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Draft, Durability, Envelope
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import MessageTooLarge, invalid_at


class NewMessage(msgspec.Struct, frozen=True):
    """A message as its sender gave it; the server creates a message id if it is empty."""

    envelope: Envelope
    body: bytes = b""
    body_kind: BodyKind = BodyKind.NONE
    priority: int = DEFAULT_PRIORITY
    available_at: Instant | None = None
    delay: Duration | None = None
    ttl: Duration | None = None
    durability: Durability = Durability.DURABLE


def create_draft(new_message: NewMessage, queue: Queue, default_id: str) -> Draft:
    """Return the draft of a message, with the queue's defaults applied.

    Refuses with `MessageTooLarge` if body and properties together exceed the queue's limit. Refuses with
    `InvalidRequest` a blank at the end of a group in a queue with groups: MariaDB compares ids without it.
    """
    settings = queue.settings
    size = len(new_message.body) + len(new_message.envelope.properties)
    if size > settings.max_message_bytes:
        raise MessageTooLarge(
            f"The message has {size} bytes; max_message_bytes of queue {queue.name} is {settings.max_message_bytes}."
        )
    envelope = new_message.envelope
    group_id = envelope.group_id if queue.has_groups else None
    if group_id is not None and group_id.endswith(" "):
        raise invalid_at("/group_id", "In a queue with groups, a group_id does not end with a blank.")
    return Draft(
        queue_id=queue.id,
        envelope=envelope if envelope.message_id else replace(envelope, message_id=default_id),
        body=new_message.body,
        body_kind=new_message.body_kind,
        priority=new_message.priority,
        available_at=new_message.available_at,
        delay=_delay(new_message, settings) or None,
        ttl=time_to_live(new_message.ttl, settings),
        duplicate_window=settings.duplicate_detection_window or 0,
        is_in_group=group_id is not None,
        keeps_history=settings.history,
    )


def _delay(new_message: NewMessage, settings: QueueSettings) -> Duration | None:
    """Return the delay of a message: its own one, also 0, or that of the queue if the message has no due time either."""
    if new_message.delay is not None or new_message.available_at is not None:
        return new_message.delay
    return settings.default_delay


def fit_draft(draft: Draft, queue: Queue) -> Draft:
    """Return the draft of an accepted message for a queue, by the settings that the queue has now.

    It may be another queue than before: one of the same name that was made after a deletion.
    """
    return replace(
        draft,
        queue_id=queue.id,
        duplicate_window=queue.settings.duplicate_detection_window or 0,
        is_in_group=queue.has_groups and draft.envelope.group_id is not None,
        keeps_history=queue.settings.history,
        shared_body_id=draft.shared_body_id if queue.shares_bodies else None,
    )
