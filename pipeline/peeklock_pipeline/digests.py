"""The server's digests of messages, of archived rows and of events, computed again from the lake's columns.

All are SHA-256 over fields in a fixed order. A null field is `-`. Any other field is its length in octets in decimal, a
colon, and its octets. Tasks compute them where they read the rows: Arrow builds the fields of all rows of a table at once.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peeklock_pipeline.table_specs import CODES, TIMESTAMP

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

LAST_DOT = r"(?s)^.*\."
"""The text up to the last dot."""


def row_digests(rows: pa.Table) -> pa.Array:
    """Return the digest of each row of `STORED_ROWS`; null if its partition is not the day on which the message ended.

    Numbers are in decimal, times in microseconds since 1970, and bytes in lower-case hexadecimal. The body is replaced
    by its SHA-256 in hexadecimal, which a row may have as `body_sha256`. A lock token is replaced by its secret.
    """
    ended_that_day: Any = pc.equal(rows["date"], rows["settled_at"].cast(pa.date32()))
    return pc.if_else(ended_that_day, _digests_of_fields(DIGESTED_COLUMNS, rows), None)


def event_digests(events: pa.Table) -> pa.Array:
    """Return the digest of each event (`EVENTS`)."""
    return _digests_of_fields(DIGESTED_EVENT_COLUMNS, events)


def content_digests(rows: pa.Table) -> pa.Array:
    """Return the digest of each message's content, in hexadecimal; null without a body. The body enters it unchanged."""
    lengths = pc.binary_length(rows["body"]).cast(pa.string())
    before = [*(_framed(_text(name, rows)) for name in CONTENT), lengths, pa.scalar(":")]
    starts = _joined(before).cast(pa.binary()).to_pylist()
    bodies = rows["body"].to_pylist()
    return pa.array(
        [
            None if body is None else sha256(start + body).hexdigest()[:CONTENT_HEX_DIGITS]
            for start, body in zip(starts, bodies, strict=True)
        ],
        pa.string(),
    )


def hexadecimal(octets: pa.ChunkedArray) -> pa.Array:
    """Return octets in lower-case hexadecimal."""
    return pa.array([None if value is None else value.hex() for value in octets.to_pylist()], pa.string())


def digest_of_lines(columns: Iterable[pa.ChunkedArray]) -> str:
    """Return the SHA-256 over the values of these columns, one after the other, each followed by a line feed.

    Nulls are left out, so that the digest of a batch with a null row is not the sealed one.
    """
    digest = sha256()
    for column in columns:
        for chunk in column.cast(pa.string()).chunks:
            digest.update("".join(f"{line}\n" for line in chunk.drop_null().to_pylist()).encode())
    return digest.hexdigest()


def _digests_of_fields(names: Sequence[str], rows: pa.Table) -> pa.Array:
    return _sha256(_joined([_framed(_text(name, rows)) for name in names]))


def _sha256(octets: pa.ChunkedArray) -> pa.Array:
    values = octets.cast(pa.binary()).to_pylist()
    return pa.array([None if value is None else sha256(value).hexdigest() for value in values], pa.string())


def _framed(texts: Any) -> Any:
    """Return texts with their lengths in front, so that two different rows never give the same octets."""
    lengths = pc.binary_length(texts).cast(pa.string())
    return pc.coalesce(_joined([lengths, texts], ":"), pa.scalar("-"))


def _joined(columns: Sequence[Any], separator: str = "") -> Any:
    """Return the texts of each row joined; null if one of them is."""
    return pc.binary_join_element_wise(*columns, pa.scalar(separator))


def _text(name: str, rows: pa.Table) -> Any:
    """Return the texts of a column in a digest."""
    column: Any = rows[name]
    if column.type == TIMESTAMP:
        return column.cast(pa.int64()).cast(pa.string())
    if name == "body":
        return pc.coalesce(rows["body_sha256"], _sha256(column))
    if name == "content_digest":
        return hexadecimal(column)
    if name == "lock_token":
        return _secrets(column, rows["sequence_number"])
    if name in CODES:
        return _codes(column, CODES[name])
    return column.cast(pa.string())


def _codes(texts: Any, names: Sequence[str]) -> Any:
    """Return the codes of names. An unknown code is text already; the text of a known one gives what no code is."""
    codes = pc.index_in(texts, value_set=pa.array(names)).cast(pa.string())
    is_known: Any = pc.is_in(texts, value_set=pa.array([str(code) for code in range(len(names))]))
    return pc.coalesce(codes, pc.if_else(is_known, _joined([texts, pa.scalar("?")]), texts))


def _secrets(tokens: Any, numbers: Any) -> Any:
    """Return the secrets of lock tokens. A token that is not one of its message gives what no secret is."""
    texts, secrets = numbers.cast(pa.string()), pc.replace_substring_regex(tokens, LAST_DOT, "")
    is_own: Any = pc.equal(_joined([texts, secrets], "."), tokens)
    return pc.if_else(is_own, secrets, _joined([texts, tokens], "."))
