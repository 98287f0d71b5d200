"""The columns that the digest of an archived row covers, and how each kind is encoded."""

from collections.abc import Mapping
from enum import StrEnum


class DigestKind(StrEnum):
    """How a column's value becomes octets in the digest of a row."""

    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    BODY = "body"


DIGESTED_COLUMNS: Mapping[str, DigestKind] = {
    "sequence_number": DigestKind.NUMBER,
    "queue": DigestKind.TEXT,
    "outcome": DigestKind.TEXT,
    "settled_at": DigestKind.NUMBER,
    "enqueued_at": DigestKind.NUMBER,
    "available_at": DigestKind.NUMBER,
    "expires_at": DigestKind.NUMBER,
    "first_delivered_at": DigestKind.NUMBER,
    "last_delivered_at": DigestKind.NUMBER,
    "delivery_count": DigestKind.NUMBER,
    "failure_count": DigestKind.NUMBER,
    "last_failure": DigestKind.TEXT,
    "priority": DigestKind.NUMBER,
    "message_id": DigestKind.TEXT,
    "group_id": DigestKind.TEXT,
    "receiver_id": DigestKind.TEXT,
    "lock_token": DigestKind.BYTES,
    "headers": DigestKind.TEXT,
    "properties": DigestKind.TEXT,
    "body_kind": DigestKind.NUMBER,
    "body": DigestKind.BODY,
    "dead_letter_reason": DigestKind.TEXT,
    "dead_letter_description": DigestKind.TEXT,
    "content_digest": DigestKind.BYTES,
}
"""The columns of the archive that the digest of a row covers, in order: all exported columns except `export_batch`.

Times are microseconds since 1970. `lock_token` is the 16 bytes of its secret. `body_kind` is the number. Never change
this mapping: a batch is trimmed only if the server computes the same digest again."""

DIGESTED_EVENT_COLUMNS: Mapping[str, DigestKind] = {
    "sequence_number": DigestKind.NUMBER,
    "id": DigestKind.NUMBER,
    "happened_at": DigestKind.NUMBER,
    "event": DigestKind.TEXT,
    "state": DigestKind.NUMBER,
    "outcome": DigestKind.TEXT,
    "receiver_id": DigestKind.TEXT,
    "reason": DigestKind.TEXT,
    "delivery_count": DigestKind.NUMBER,
}
"""The columns of an event that its digest covers, in order: all that are exported. Never change this mapping either."""
