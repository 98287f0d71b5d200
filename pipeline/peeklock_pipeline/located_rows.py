"""The rows that an audit compares: where each message is, and its digests, without its content.

Tasks convert the rows of a file or of the database where they read them, so that Spark moves no content.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peeklock_pipeline import digests
from peeklock_pipeline.table_specs import EVENT_DIGESTS, EVENTS, HISTORY, LOCATED_ROWS, STORED_ROWS, with_every_column


def located(rows: pa.Table) -> pa.Table:
    """Convert rows of the database (`STORED_ROWS`)."""
    own = digests.hexadecimal(rows["content_digest"])
    columns = {
        "is_covered": pc.is_valid(own),
        "is_as_accepted": pc.equal(own, pc.coalesce(rows["content_found"], digests.content_digests(rows))),
        "row_digest": digests.row_digests(rows),
    }
    found = [columns[name] if name in columns else rows[name] for name in LOCATED_ROWS.schema.names]
    return pa.table(found, schema=LOCATED_ROWS.schema)


def located_in_lake(rows: pa.Table) -> pa.Table:
    """Convert messages of the lake's archive."""
    rows = rows.append_column("standing", rows["outcome"])
    rows = rows.append_column("place", pa.repeat("lake", rows.num_rows))
    return located(with_every_column(rows, STORED_ROWS))


def events_in_lake(rows: pa.Table) -> pa.Table:
    """Return the events (`EVENTS`) of messages of the lake's archive, from their histories."""
    histories: Any = rows[HISTORY].combine_chunks()
    events: Any = pc.list_flatten(histories)
    messages = rows.select(["sequence_number", "export_batch"]).take(pc.list_parent_indices(histories))
    for field in events.type:
        messages = messages.append_column(field.name, pc.struct_field(events, field.name))
    return messages.select(EVENTS.schema.names)


def located_events(events: pa.Table, place: str) -> pa.Table:
    """Convert events (`EVENTS`) of the lake or of the archive (`EVENT_DIGESTS`)."""
    places, keys = pa.repeat(place, events.num_rows), ("sequence_number", "number")
    columns = [events["export_batch"], places, *(events[name] for name in keys), digests.event_digests(events)]
    return pa.table(columns, schema=EVENT_DIGESTS.schema)
