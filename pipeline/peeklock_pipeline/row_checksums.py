"""The checksum of a message in the lake: an export writes it, and an audit names by it a message that was edited.

It is no proof, because it is in the same row, and has four bytes. The digest of the batch proves that some message of it
was edited. An edit keeps the checksum with a probability of one in four billion, and then the audit names the batch alone.
"""

from struct import unpack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peeklock_pipeline import digests
from peeklock_pipeline.located_rows import events_in_lake, located_in_lake
from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, ROW_CHECKSUM, STORED_ROWS, with_every_column

NO_DIGEST = "00000000"
"""The first four bytes, in hexadecimal, of the digest of a row that has none."""

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
    """Return the exclusive or of the first four bytes of the digests of each message and of its events.

    Null if the partition of a message is not the day on which it ended.
    """
    of_rows: Any = digests.row_digests(with_every_column(rows, STORED_ROWS))
    histories: Any = rows[HISTORY].combine_chunks()
    messages: Any = pc.list_parent_indices(histories)
    found = _starts(of_rows.fill_null(NO_DIGEST))
    of_events = _starts(digests.event_digests(events_in_lake(rows)))
    for message, start in zip(messages.to_pylist(), of_events, strict=True):
        found[message] ^= start
    return pc.if_else(of_rows.is_valid(), pa.array(found, ARCHIVE.schema.field(ROW_CHECKSUM).type), None)


def _starts(hexadecimal: pa.Array) -> list[int]:
    """Return the first four bytes of digests in hexadecimal as signed numbers."""
    starts: Any = pc.utf8_slice_codeunits(hexadecimal, 0, len(NO_DIGEST))
    return [*unpack(f">{len(hexadecimal)}i", bytes.fromhex("".join(starts.to_pylist())))]
