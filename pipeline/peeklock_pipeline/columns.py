"""The columns of the lake's tables, written down once; what the archive stores is turned into them here.

The archive keeps times as microseconds since 1970 in UTC and a lock token as its secret; the lake has
timestamps, and the token as clients know it.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOMENT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of the lake: its name, its columns, and those by whose values its files are told apart."""

    name: str
    schema: pa.Schema
    partitions: tuple[str, ...] = ()


IDENTITY = (
    pa.field("sequence_number", pa.int64(), nullable=False),
    pa.field("queue", pa.string(), nullable=False),
)
COURSE = (
    pa.field("enqueued_at", MOMENT, nullable=False),
    pa.field("available_at", MOMENT, nullable=False),
    pa.field("expires_at", MOMENT),
    pa.field("first_delivered_at", MOMENT),
    pa.field("last_delivered_at", MOMENT),
    pa.field("delivery_count", pa.int32(), nullable=False),
    pa.field("failure_count", pa.int32(), nullable=False),
    pa.field("last_failure", pa.string()),
    pa.field("priority", pa.int16(), nullable=False),
    pa.field("message_id", pa.string(), nullable=False),
    pa.field("group_id", pa.string()),
    pa.field("receiver_id", pa.string()),
)
CONTENT = (
    pa.field("headers", pa.string()),
    pa.field("properties", pa.string()),
    pa.field("body_kind", pa.string(), nullable=False),
    pa.field("body", pa.binary(), nullable=False),
    pa.field("dead_letter_reason", pa.string()),
    pa.field("dead_letter_description", pa.string()),
    pa.field("content_digest", pa.binary()),
)
"""What is known of a message wherever it is: which one, how far it has come, and what is in it."""

ARCHIVE = Shape(
    "archive",
    pa.schema(
        [
            *IDENTITY,
            pa.field("date", pa.date32(), nullable=False),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("settled_at", MOMENT, nullable=False),
            *COURSE,
            pa.field("lock_token", pa.string()),
            *CONTENT,
            pa.field("export_batch", pa.int64(), nullable=False),
        ]
    ),
    partitions=("queue", "date"),
)
"""Messages as they ended. `date` is the day of `settled_at`, in UTC."""

MESSAGES = Shape(
    "messages",
    pa.schema(
        [
            *IDENTITY,
            pa.field("state", pa.string(), nullable=False),
            pa.field("locked_until", MOMENT),
            pa.field("dead_lettered_at", MOMENT),
            *COURSE,
            *CONTENT,
            pa.field("taken_at", MOMENT, nullable=False),
        ]
    ),
    partitions=("queue",),
)
"""Messages that were in their queues at `taken_at`, dead-lettered ones among them."""

PLACE = (
    pa.field("standing", pa.string(), nullable=False),
    pa.field("place", pa.string(), nullable=False),
)

STORED_ROWS = Shape(
    "stored_rows",
    pa.schema(
        [
            *(field.with_nullable(True) for field in ARCHIVE.schema),
            *PLACE,
            pa.field("body_sha256", pa.string()),
            pa.field("content_found", pa.string()),
        ]
    ),
)
"""The database's rows, of messages in queues and of the archive, as an audit reads them.

In the place of a body stand its SHA-256 and the digest of the message's content, in hexadecimal, where the database
computes them; else the body itself.
"""

PLACED = Shape(
    "placed",
    pa.schema(
        [
            *IDENTITY,
            *(field for field in COURSE if field.name in ("message_id", "enqueued_at")),
            *PLACE,
            pa.field("export_batch", pa.int64()),
            pa.field("is_covered", pa.bool_(), nullable=False),
            pa.field("is_as_accepted", pa.bool_()),
            pa.field("row_digest", pa.string()),
        ]
    ),
)
"""Where a message stands, without what is in it: live, dead_lettered, or how it ended. Kept in no lake.

`place` is the table that has the row: `queue`, `archive` or `lake`. `is_covered` says whether the message has a digest of
its content, `is_as_accepted` whether it is that of what the row holds.
"""

REMOVED = Shape(
    "removed",
    pa.schema(
        [
            pa.field("removal", pa.string(), nullable=False),
            pa.field("queue", pa.string(), nullable=False),
            pa.field("date", pa.date32(), nullable=False),
            pa.field("export_batch", pa.int64(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            pa.field("accepted_on", pa.date32()),
            pa.field("covered", pa.int64()),
        ]
    ),
)
"""How many messages of each batch the lake's own retention has removed, and by which removal.

`covered` of them, all accepted on one day, had a digest of their content.
"""

OPENING = Shape(
    "opening",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("date", pa.date32(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
        ]
    ),
)
"""How many of the messages that a queue accepted on a day were gone, or exported without digests, when this was noted."""

MISSED = Shape(
    "missed",
    pa.schema([pa.field("export_batch", pa.int64(), nullable=False), pa.field("messages", pa.int64(), nullable=False)]),
)
"""Batches that the archive had already removed when an export came for them, and how many messages each had."""

REPLAYS = Shape(
    "replays",
    pa.schema(
        [
            pa.field("replay", pa.string(), nullable=False),
            pa.field("event", pa.string(), nullable=False),
            pa.field("at", MOMENT, nullable=False),
            pa.field("condition", pa.string()),
            pa.field("target_queue", pa.string()),
            pa.field("last_batch", pa.int64()),
            pa.field("first_sequence", pa.int64(), nullable=False),
            pa.field("last_sequence", pa.int64(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            pa.field("duplicates", pa.int64()),
        ]
    ),
)
"""What replays were to send, `planned`, and which portions they have `begun`, `sent` or `skipped`."""

CODES = {
    "body_kind": ("none", "json", "bytes"),
    "state": ("", "available", "locked", "scheduled", "deferred", "dead_lettered"),
}
"""What the numbers in these columns stand for."""

STORED = tuple(name for name in ARCHIVE.schema.names if name != "date")
"""The columns that are read from the archive."""


def kept(rows: pa.Table, shape: Shape) -> pa.Table:
    """Rows of the database as a table of the lake has them, with its columns in its order, as far as they are read.

    Drivers differ in how they tell numbers and texts apart where a column is empty; here they become what they are.
    """
    columns = {name: _as_kept(name, rows, shape) for name in shape.schema.names if name in rows.column_names}
    if "date" in shape.schema.names and "settled_at" in columns:
        columns["date"] = columns["settled_at"].cast(pa.date32())
    wanted = [field for field in shape.schema if field.name in columns]
    return pa.table([columns[field.name] for field in wanted], schema=pa.schema(wanted))


def _as_kept(name: str, rows: pa.Table, shape: Shape) -> pa.ChunkedArray:
    column: Any = rows[name]
    kind = shape.schema.field(name).type
    if name in CODES:
        return _named(column.cast(pa.int64()), CODES[name])
    if name == "lock_token":
        return _tokens(rows)
    if kind == MOMENT:
        return column.cast(pa.int64()).cast(MOMENT)
    return column.cast(kind)


def _named(codes: Any, names: tuple[str, ...]) -> pa.ChunkedArray:
    """What these numbers stand for. A number that stands for nothing remains, as a text, so that an audit can name it."""
    places: Any = pc.index_in(codes, pa.array(range(len(names)), pa.int64()))
    return pc.coalesce(pc.take(pa.chunked_array([names]), places), codes.cast(pa.string()))


def _tokens(rows: pa.Table) -> pa.ChunkedArray:
    numbers, secrets = rows["sequence_number"].to_pylist(), rows["lock_token"].to_pylist()
    tokens = [
        None if secret is None else f"{number}.{bytes(secret).hex()}"
        for number, secret in zip(numbers, secrets, strict=True)
    ]
    return pa.chunked_array([pa.array(tokens, pa.string())])
