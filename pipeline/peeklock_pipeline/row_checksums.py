"""The checksum of a message in the lake: an export writes it, and an audit names by it a message that was edited.

It is no proof, because it is in the same row. The digest of the batch proves that some message of it was edited.
"""

from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peeklock_pipeline import digests
from peeklock_pipeline.located_rows import events_in_lake, located_in_lake
from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, ROW_CHECKSUM, STORED_ROWS, with_every_column

CHECKSUM_BYTES = 4
"""An edit keeps the checksum of a message with a probability of one in four billion."""

EDITED_ROWS = ARCHIVE.with_columns("export_batch", "sequence_number", "queue", "message_id")
"""What an audit tells of an edited message."""


def with_checksums(rows: pa.Table) -> pa.Table:
    """Return messages that were read from the database with the checksum of each."""
    return rows.append_column(ARCHIVE.schema.field(ROW_CHECKSUM), checksums(rows))


def edited_in_lake(rows: pa.Table) -> pa.Table:
    """Return the messages (`EDITED_ROWS`) of the lake's archive that do not match their checksums.

    Without those that have none, and without those that do not have the content that was accepted.
    """
    is_accepted: Any = located_in_lake(rows)["is_as_accepted"]
    is_intact: Any = pc.equal(rows[ROW_CHECKSUM], checksums(rows))
    is_excluded: Any = pc.or_(pc.invert(is_accepted).fill_null(False), is_intact.fill_null(False))
    is_edited: Any = pc.and_not(pc.is_valid(rows[ROW_CHECKSUM]), is_excluded)
    return rows.select(EDITED_ROWS.schema.names).filter(is_edited)


def checksums(rows: pa.Table) -> pa.Array:
    """Return the start of the digest that a batch of each message alone has, as a signed number.

    Null if the partition of a message is not the day on which it ended.
    """
    lengths: Any = pc.list_value_length(rows[HISTORY])
    events = iter(digests.event_digests(events_in_lake(rows)).to_pylist())
    of_rows: Any = digests.row_digests(with_every_column(rows, STORED_ROWS))
    found = [
        _checksum(row, islice(events, length or 0))
        for row, length in zip(of_rows.to_pylist(), lengths.to_pylist(), strict=True)
    ]
    return pa.array(found, ARCHIVE.schema.field(ROW_CHECKSUM).type)


def _checksum(row: str | None, events: Iterable[Any]) -> int | None:
    lines = "".join(f"{digest}\n" for digest in (row, *events))
    return None if row is None else int.from_bytes(sha256(lines.encode()).digest()[:CHECKSUM_BYTES], "big", signed=True)
