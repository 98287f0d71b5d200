"""What the digest of an archived row covers, and how each engine takes it."""

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """How a column's value becomes octets in the digest of a row."""

    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    BODY = "body"


DIGESTED_COLUMNS: Mapping[str, Kind] = {
    "sequence_number": Kind.NUMBER,
    "queue": Kind.TEXT,
    "outcome": Kind.TEXT,
    "settled_at": Kind.NUMBER,
    "enqueued_at": Kind.NUMBER,
    "available_at": Kind.NUMBER,
    "expires_at": Kind.NUMBER,
    "first_delivered_at": Kind.NUMBER,
    "last_delivered_at": Kind.NUMBER,
    "delivery_count": Kind.NUMBER,
    "failure_count": Kind.NUMBER,
    "last_failure": Kind.TEXT,
    "priority": Kind.NUMBER,
    "message_id": Kind.TEXT,
    "group_id": Kind.TEXT,
    "receiver_id": Kind.TEXT,
    "lock_token": Kind.BYTES,
    "headers": Kind.TEXT,
    "properties": Kind.TEXT,
    "body_kind": Kind.NUMBER,
    "body": Kind.BODY,
    "dead_letter_reason": Kind.TEXT,
    "dead_letter_description": Kind.TEXT,
    "content_digest": Kind.BYTES,
}
"""The columns of the archive that the digest of a row covers, in its order: all that are exported but `export_batch`.

Times are microseconds since 1970. `lock_token` is the 16 bytes of its secret, `body_kind` the number. Never change
this: a batch is trimmed only where its digest is found again."""
