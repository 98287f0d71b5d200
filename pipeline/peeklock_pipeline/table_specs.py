"""The columns of the lake's tables, and the conversion of database rows to them.

The archive keeps times as microseconds since 1970 in UTC, and a lock token as its secret. The lake has timestamps, and
the token as clients know it.
"""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of the lake: its name, its columns, and its partition columns.

    `is_narrowed` means that the columns are only those that a reader needs.

    The rows of a file are in the order of `sort_columns`. The log has the lowest and highest value of `statistics` of
    each file, so that readers skip files.
    """

    name: str
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    sort_columns: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    is_narrowed: bool = False

    def with_columns(self, *names: str) -> "TableSpec":
        """Return the table with these columns alone, for a reader that needs no others."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]), is_narrowed=True)


IDENTITY_FIELDS = (
    pa.field("sequence_number", pa.int64(), nullable=False),
    pa.field("queue", pa.string(), nullable=False),
)
LIFECYCLE_FIELDS = (
    pa.field("enqueued_at", TIMESTAMP, nullable=False),
    pa.field("available_at", TIMESTAMP, nullable=False),
    pa.field("expires_at", TIMESTAMP),
    pa.field("first_delivered_at", TIMESTAMP),
    pa.field("last_delivered_at", TIMESTAMP),
    pa.field("delivery_count", pa.int32(), nullable=False),
    pa.field("failure_count", pa.int32(), nullable=False),
    pa.field("last_failure", pa.string()),
    pa.field("priority", pa.int16(), nullable=False),
    pa.field("message_id", pa.string(), nullable=False),
    pa.field("group_id", pa.string()),
    pa.field("receiver_id", pa.string()),
)
CONTENT_FIELDS = (
    pa.field("headers", pa.string()),
    pa.field("properties", pa.string()),
    pa.field("body_kind", pa.string(), nullable=False),
    pa.field("body", pa.binary(), nullable=False),
    pa.field("dead_letter_reason", pa.string()),
    pa.field("dead_letter_description", pa.string()),
    pa.field("content_digest", pa.binary()),
)
"""The columns of a message in queues and in the archive: identity, progress and content."""

HISTORY_FIELDS = (
    pa.field("number", pa.int64(), nullable=False),
    pa.field("at", TIMESTAMP, nullable=False),
    pa.field("event", pa.string(), nullable=False),
    pa.field("state", pa.string()),
    pa.field("outcome", pa.string()),
    pa.field("receiver_id", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("delivery_count", pa.int32()),
)
"""The fields of an event in a message's history."""

HISTORY = "history"
"""The column of the archive that has the events of a message."""

ROW_CHECKSUM = "row_checksum"
"""The column of the lake's archive by which an audit names a message of a batch that is not as it was sealed."""

ARCHIVE_FIELDS = (
    *IDENTITY_FIELDS,
    pa.field("date", pa.date32(), nullable=False),
    pa.field("outcome", pa.string(), nullable=False),
    pa.field("settled_at", TIMESTAMP, nullable=False),
    *LIFECYCLE_FIELDS,
    pa.field("lock_token", pa.string()),
    *CONTENT_FIELDS,
    pa.field("export_batch", pa.int64(), nullable=False),
)

ARCHIVE = TableSpec(
    "archive",
    pa.schema(
        [
            *ARCHIVE_FIELDS,
            pa.field(HISTORY, pa.list_(pa.struct(HISTORY_FIELDS))),
            pa.field(ROW_CHECKSUM, pa.int32()),
        ]
    ),
    partitions=("date",),
    sort_columns=("queue", "sequence_number"),
    statistics=("queue", "sequence_number", "settled_at", "enqueued_at", "export_batch"),
)
"""Ended messages. `date` is the day of `settled_at`, in UTC. `history` is null if the queue kept none. `row_checksum` is
null in rows that an older version exported.

A partition for each queue as well would make a file of each queue, day and task of an export.
"""

EVENTS = TableSpec(
    "events",
    pa.schema(
        [
            pa.field("sequence_number", pa.int64(), nullable=False),
            *HISTORY_FIELDS,
            pa.field("export_batch", pa.int64(), nullable=False),
        ]
    ),
)
"""The events of sealed messages, as they are read from the database. Not stored in a lake."""

MESSAGES = TableSpec(
    "messages",
    pa.schema(
        [
            *IDENTITY_FIELDS,
            pa.field("state", pa.string(), nullable=False),
            pa.field("locked_until", TIMESTAMP),
            pa.field("dead_lettered_at", TIMESTAMP),
            *LIFECYCLE_FIELDS,
            *CONTENT_FIELDS,
            pa.field("taken_at", TIMESTAMP, nullable=False),
        ]
    ),
    sort_columns=("queue", "sequence_number"),
    statistics=("queue", "sequence_number", "enqueued_at"),
)
"""Messages that were in their queues at `taken_at`, including dead-lettered ones."""

LOCATION_FIELDS = (
    pa.field("standing", pa.string()),
    pa.field("place", pa.string(), nullable=False),
)

STORED_ROWS = TableSpec(
    "stored_rows",
    pa.schema(
        [
            *(field.with_nullable(True) for field in ARCHIVE_FIELDS),
            *LOCATION_FIELDS,
            pa.field("body_sha256", pa.string()),
            pa.field("content_found", pa.string()),
        ]
    ),
)
"""The database's rows of messages in queues and in the archive, as an audit reads them.

If the database computes digests, the SHA-256 of the body and the digest of the content, in hexadecimal, replace the
body.
"""

LOCATED_ROWS = TableSpec(
    "located_rows",
    pa.schema(
        [
            pa.field("sequence_number", pa.int64()),
            pa.field("queue", pa.string()),
            pa.field("enqueued_at", TIMESTAMP),
            pa.field("message_id", pa.string()),
            *LOCATION_FIELDS,
            pa.field("export_batch", pa.int64()),
            pa.field("date", pa.date32()),
            pa.field("is_covered", pa.bool_(), nullable=False),
            pa.field("is_as_accepted", pa.bool_()),
            pa.field("row_digest", pa.string()),
        ]
    ),
)
"""The location of a message without its content; `standing` is live, dead_lettered, or its outcome. Not stored in a lake.

`place` is the table that has the row: `queue`, `archive` or `lake`. `is_covered` tells whether the message has a digest
of its content, `is_as_accepted` whether that digest matches the row. In a damaged lake, other values may be null too.
"""

EVENT_DIGESTS = TableSpec(
    "event_digests",
    pa.schema(
        [
            pa.field("export_batch", pa.int64()),
            pa.field("place", pa.string(), nullable=False),
            pa.field("sequence_number", pa.int64()),
            pa.field("event_number", pa.int64()),
            pa.field("event_digest", pa.string()),
        ]
    ),
)
"""The digests of the events of a message, in the lake or in the archive. Not stored in a lake."""

REMOVED = TableSpec(
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
"""The number of messages of each batch that the lake's own retention has removed, and the name of the removal.

`covered` of them, all accepted on one day, had a digest of their content.
"""

AUDITED = TableSpec(
    "audited",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("date", pa.date32(), nullable=False),
            pa.field("settled_on", pa.date32(), nullable=False),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            pa.field("covered", pa.int64(), nullable=False),
        ]
    ),
)
"""What audits have found in the lake: messages that a queue accepted on a day (`date`), and that ended on another with
an outcome. `covered` of them have a digest of their content."""

ACCOUNTS = TableSpec(
    "accounts",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("date", pa.date32(), nullable=False),
            pa.field("accepted", pa.int64(), nullable=False),
            pa.field("unarchived", pa.int64(), nullable=False),
            pa.field("held", pa.int64(), nullable=False),
        ]
    ),
)
"""How many messages a queue accepted on a day, how many of them left without a row because their queue keeps no archive, and
how many the database holds. Only messages with a digest of their content count. These rows are in no lake."""

OPENING = TableSpec(
    "opening",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("date", pa.date32(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
        ]
    ),
)
"""How many messages that a queue accepted on a day were gone, or exported without digests, when this was recorded."""

MISSED = TableSpec(
    "missed",
    pa.schema([pa.field("export_batch", pa.int64(), nullable=False), pa.field("messages", pa.int64(), nullable=False)]),
)
"""Batches that the archive had removed before an export, and the number of their messages."""

REPLAYS = TableSpec(
    "replays",
    pa.schema(
        [
            pa.field("replay", pa.string(), nullable=False),
            pa.field("event", pa.string(), nullable=False),
            pa.field("at", TIMESTAMP, nullable=False),
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
"""The plan of each replay (`planned`), and the portions that it has `begun`, `sent` or `skipped`."""

HEADERS = ("content_type", "correlation_id", "subject", "reply_to", "to")
"""The texts in column `headers` with which a message is sent again. A trace belongs to one send."""

CODES = {
    "body_kind": ("none", "json", "bytes"),
    "state": ("", "available", "locked", "scheduled", "deferred", "dead_lettered", "uncommitted", "blocked"),
}
"""The names of the codes in these columns."""

MESSAGE_COLUMNS = tuple(name for name in ARCHIVE.schema.names if name != ROW_CHECKSUM)
"""The columns of an ended message, in the server's archive and in the lake."""

ARCHIVE_COLUMNS = tuple(name for name in MESSAGE_COLUMNS if name != "date")
"""The columns that an export reads from the archive."""


def to_lake_table(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Convert rows of the database to the columns of a table of the lake, in its order. Columns that were not read are absent.

    Drivers give different types for empty columns; the result has the types of the table.
    """
    columns = {name: _lake_column(name, rows, spec) for name in spec.schema.names if name in rows.column_names}
    if "date" in spec.schema.names and "settled_at" in columns:
        columns["date"] = columns["settled_at"].cast(pa.date32())
    wanted = [field for field in spec.schema if field.name in columns]
    return pa.table([columns[field.name] for field in wanted], schema=pa.schema(wanted))


def with_every_column(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows with every column of a table, in its order; columns that were not read are null."""
    for field in spec.schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(spec.schema.names)


def _lake_column(name: str, rows: pa.Table, spec: TableSpec) -> pa.ChunkedArray:
    column: Any = rows[name]
    kind = spec.schema.field(name).type
    if name in CODES and pa.types.is_integer(column.type):
        return _decoded(column.cast(pa.int64()), CODES[name])
    if name == "lock_token":
        return _tokens(rows)
    if kind == TIMESTAMP:
        return column.cast(pa.int64()).cast(TIMESTAMP)
    return column.cast(kind)


def _decoded(codes: Any, names: tuple[str, ...]) -> pa.ChunkedArray:
    """Return the names of these codes. An unknown code stays, as text, so that an audit can report it."""
    places: Any = pc.index_in(codes, pa.array(range(len(names)), pa.int64()))
    return pc.coalesce(pc.take(pa.chunked_array([names]), places), codes.cast(pa.string()))


def _tokens(rows: pa.Table) -> pa.ChunkedArray:
    numbers, secrets = rows["sequence_number"].to_pylist(), rows["lock_token"].to_pylist()
    tokens = [
        None if secret is None else f"{number}.{bytes(secret).hex()}"
        for number, secret in zip(numbers, secrets, strict=True)
    ]
    return pa.chunked_array([pa.array(tokens, pa.string())])
