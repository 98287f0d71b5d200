"""Converts rows of messages to domain values and drafts to rows.

A row is read by position, in the order of its `*_COLUMNS`. Statements name those columns as `@message` and so on.
The hot functions here run for every message, so they look values up instead of constructing them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from app.domain.archive import ArchivedMessage
from app.domain.digest import content_digest
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageMetadata
from app.domain.settlement import LockToken
from app.store.shared.json_columns import read_headers, read_properties, write_headers, write_properties
from app.store.shared.rows import HOME_STATES, IS_OFFERED, OUTCOMES, STATES, Row

IS_BLOCKED = 2
"""The value of column `in_group` in a blocked message. It is 1 in one that has a place, else null."""

BODY_KINDS: Mapping[int, BodyKind] = {kind.value: kind for kind in BodyKind}

MESSAGE_COLUMNS = (
    "sequence_number",
    "queue_id",
    "state",
    "home_state",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "delivery_count",
    "failure_count",
    "lock_token",
    "locked_until",
    "lock_generation",
    "receiver_id",
    "first_delivered_at",
    "last_delivered_at",
    "last_failure",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_kind",
    "body",
    "dead_letter_reason",
    "dead_letter_description",
    "dead_lettered_at",
    "read_at",
)


INLINE_COLUMNS = tuple(f"inline_{name}" if name in ("body", "properties") else name for name in MESSAGE_COLUMNS)
"""The same columns, with null for the body and properties if these are large."""


def message(row: Row, read_after: float | None = None) -> Message:
    """Convert a row of `MESSAGE_COLUMNS`. `read_after` is the monotonic clock before the row was requested."""
    (
        sequence_number,
        queue_id,
        state,
        home_state,
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        locked_until,
        lock_generation,
        receiver_id,
        first_delivered_at,
        last_delivered_at,
        last_failure,
        message_id,
        group_id,
        headers,
        properties,
        body_kind,
        body,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
        read_at,
    ) = row
    return Message(
        sequence_number,
        queue_id,
        envelope(message_id, group_id, headers, properties),
        body,
        BODY_KINDS[body_kind],
        STATES[state],
        HOME_STATES[home_state],
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        locked_until,
        lock_generation,
        receiver_id,
        first_delivered_at,
        last_delivered_at,
        last_failure,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
        read_at,
        read_after,
        home_state == IS_OFFERED,
    )


def messages_locked_by(tokens: Iterable[LockToken], found_rows: Iterable[Row], read_after: float) -> list[Message]:
    """Return the messages of these rows of `MESSAGE_COLUMNS` that the tokens lock, in the order of the tokens."""
    all_messages = (message(row, read_after) for row in found_rows)
    messages = {(message.sequence_number, message.lock_token): message for message in all_messages}
    keys = ((token.sequence_number, token.secret) for token in tokens)
    return [messages[key] for key in keys if key in messages]


METADATA_COLUMNS = (
    "sequence_number",
    "queue_id",
    "state",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "delivery_count",
    "failure_count",
    "lock_token",
    "first_delivered_at",
    "last_failure",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_bytes",
    "dead_letter_reason",
    "dead_letter_description",
    "dead_lettered_at",
)


def metadata(row: Row) -> MessageMetadata:
    """Convert a row of `METADATA_COLUMNS`: a message without its body."""
    (
        sequence_number,
        queue_id,
        state,
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        first_delivered_at,
        last_failure,
        message_id,
        group_id,
        headers,
        properties,
        body_bytes,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
    ) = row
    return MessageMetadata(
        sequence_number,
        queue_id,
        envelope(message_id, group_id, headers, properties),
        body_bytes,
        STATES[state],
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        first_delivered_at,
        last_failure,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
    )


ENDED_COLUMNS = (
    "sequence_number",
    "queue_id",
    "queue",
    "outcome",
    "enqueued_at",
    "first_delivered_at",
    "settled_at",
    "receiver_id",
    "delivery_count",
    "failure_count",
    "message_id",
    "group_id",
    "headers",
)


def archived_message(row: Row) -> ArchivedMessage:
    """Convert a row of `ENDED_COLUMNS`."""
    sequence_number, queue_id, queue, outcome, *life, message_id, group_id, headers = row
    return ArchivedMessage(
        sequence_number, queue_id, queue, envelope(message_id, group_id, headers, None), OUTCOMES[outcome], *life
    )


def envelope(message_id: str, group_id: str | None, headers: str | None, properties: str | None) -> Envelope:
    """Return the sender's metadata from these columns of a row."""
    return Envelope(message_id, read_headers(headers), group_id, read_properties(properties))


DRAFT_COLUMNS = (
    "queue_id",
    "priority",
    "available_at",
    "delay",
    "ttl",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_kind",
    "body",
    "content_digest",
    "in_group",
    "shared_body_id",
    "shared_body_bytes",
)


def draft_row(draft: Draft) -> tuple[Any, ...]:
    """Return the values that a statement needs to store a draft, in the order of `DRAFT_COLUMNS`.

    `available_at`, `delay` and `ttl` are as the sender gave them. The statement adds the store's clock. The row of a
    draft with a shared body has none of its own.
    """
    envelope = draft.envelope
    headers, body_kind, is_shared = (
        write_headers(envelope.headers),
        int(draft.body_kind),
        draft.shared_body_id is not None,
    )
    return (
        draft.queue_id,
        draft.priority,
        draft.available_at,
        draft.delay,
        draft.ttl,
        envelope.message_id,
        envelope.group_id,
        headers,
        write_properties(envelope.properties),
        body_kind,
        b"" if is_shared else draft.body,
        content_digest(envelope.message_id, envelope.group_id, headers, body_kind, draft.body),
        IS_BLOCKED if draft.is_in_group else None,
        draft.shared_body_id,
        len(draft.body) if is_shared else None,
    )


ARCHIVED_COLUMNS = (
    "sequence_number",
    "queue_id",
    "lock_token",
    "receiver_id",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "first_delivered_at",
    "last_delivered_at",
    "delivery_count",
    "failure_count",
    "last_failure",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_kind",
    "body",
    "dead_letter_reason",
    "dead_letter_description",
    "content_digest",
    "shared_body_id",
    "shared_body_bytes",
)
"""The columns that a message and the archive share. The archive's other columns record how the message ended."""
