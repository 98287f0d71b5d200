"""The server's digests of messages and of archived rows, computed again from the lake's columns.

Both are SHA-256 over fields in a fixed order. A null field is `-`. Any other field is its length in octets in decimal,
a colon, and its octets. Spark computes them without bringing a row to the driver.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from peeklock_pipeline.table_specs import CODES

TIMES = ("settled_at", "enqueued_at", "available_at", "expires_at", "first_delivered_at", "last_delivered_at", "at")

DIGESTED_COLUMNS = (
    "sequence_number", "queue", "outcome", "settled_at", "enqueued_at", "available_at", "expires_at",
    "first_delivered_at", "last_delivered_at", "delivery_count", "failure_count", "last_failure", "priority",
    "message_id", "group_id", "receiver_id", "lock_token", "headers", "properties", "body_kind", "body",
    "dead_letter_reason", "dead_letter_description", "content_digest",
)  # fmt: skip
"""The columns that the digest of a row covers, in its order: all of the lake's but `date`, `export_batch` and `history`."""

DIGESTED_EVENT_COLUMNS = (
    "sequence_number", "number", "at", "event", "state", "outcome", "receiver_id", "reason", "delivery_count",
)  # fmt: skip
"""The columns that the digest of an event covers, in its order."""

CONTENT = ("message_id", "group_id", "headers", "body_kind")
"""The columns that the digest of a message covers, in its order, before its body."""

CONTENT_HEX_DIGITS = 32
"""A message keeps the first 16 bytes of the digest of its content."""


def row_digest() -> Column:
    """Return the digest of a row; null if its partition is not the day on which the message ended.

    Numbers are in decimal, times in microseconds since 1970, and bytes in lower-case hexadecimal. The body is replaced
    by its SHA-256 in hexadecimal, which a row may have as `body_sha256`. A lock token is replaced by its secret.
    """
    digest = _digest_of_fields(DIGESTED_COLUMNS)
    return F.when(F.col("date").eqNullSafe(F.to_date("settled_at")), digest)


def event_digest() -> Column:
    """Return the digest of an event, with the columns of `EVENTS`."""
    return _digest_of_fields(DIGESTED_EVENT_COLUMNS)


def content_digest() -> Column:
    """Return the digest of a message's content, in hexadecimal. The body enters it unchanged."""
    fields = F.concat(*(framed(text(name)) for name in CONTENT))
    octets = F.concat(fields.cast("binary"), _length(F.col("body")).cast("binary"), F.col("body"))
    return F.substring(F.sha2(octets, 256), 1, CONTENT_HEX_DIGITS)


def text(name: str) -> Column:
    """Return the text of a column in a digest."""
    column = F.col(name)
    if name in TIMES:
        return F.unix_micros(column).cast("string")
    if name == "body":
        return F.coalesce(F.col("body_sha256"), F.sha2("body", 256))
    if name == "content_digest":
        return hexadecimal(column)
    if name == "lock_token":
        return _secret(column)
    if name in CODES:
        place = F.array_position(F.array(*map(F.lit, CODES[name])), column)
        return F.when(place > 0, (place - 1).cast("string")).otherwise(column)
    return column.cast("string")


def hexadecimal(octets: Column) -> Column:
    """Return octets in lower-case hexadecimal. `lower` applies Unicode rules and costs many times more."""
    return F.translate(F.hex(octets), "ABCDEF", "abcdef")


def framed(field: Column) -> Column:
    """Return a text with its length in front, so that two different rows never give the same octets."""
    return F.coalesce(F.concat(_length(field), field), F.lit("-"))


def _digest_of_fields(names: Sequence[str]) -> Column:
    return F.sha2(F.concat(*(framed(text(name)) for name in names)), 256)


def _length(field: Column) -> Column:
    return F.concat(F.octet_length(field).cast("string"), F.lit(":"))


def _secret(token: Column) -> Column:
    """Return the secret of a lock token; the whole token if it is not one of this message."""
    own = F.concat(F.col("sequence_number").cast("string"), F.lit("."))
    return F.when(token.startswith(own), F.substring_index(token, ".", -1)).otherwise(token)
