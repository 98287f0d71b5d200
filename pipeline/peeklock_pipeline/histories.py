"""The events of sealed messages: how they are read, and how the rows of their messages hold them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, HISTORY_FIELDS

FIRST_DIGEST_VERSION = 3
"""The first digest version that covers events. Events of batches with a lower one may be incomplete and are not read."""

MAX_EVENTS = 100_000
"""Events that a reader holds at a time. A batch has no more, unless it is a single message."""

SEALED_EVENT = (
    "export_batch b JOIN archive_seal s ON s.export_batch = b.number "
    "JOIN message_event e ON e.sequence_number = s.sequence_number AND e.queue_id > 0 "
    f"WHERE b.digest_version >= {FIRST_DIGEST_VERSION} AND"
)
"""The tables of which the join has a row for each event of a sealed message, and the start of a condition."""

EVENT_VALUES = (
    "e.sequence_number, e.id AS number, e.happened_at AS at, e.event, e.state, e.outcome, e.receiver_id, e.reason, "
    "e.delivery_count, s.export_batch"
)
"""The columns of an event of that join, in the names of `EVENTS`."""


def ranges_of_events(first: int, last: int, counts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Split a range of batches into ranges of about `MAX_EVENTS` events.

    `counts` has the number of events of each batch that has any, in order. Other batches are in some range.
    """
    begins, held = [first], 0
    for batch, count in counts:
        held += count
        if held > MAX_EVENTS and batch > begins[-1]:
            begins.append(batch)
            held = count
    return [(begin, following - 1) for begin, following in zip(begins, [*begins[1:], last + 1], strict=True)]


def with_histories(messages: pa.Table, events: pa.Table) -> pa.Table:
    """Return messages with a column of the events of each, in order; null if it has none."""
    ascending = events.sort_by([("sequence_number", "ascending"), ("number", "ascending")]).combine_chunks()
    runs: Any = pc.call_function("run_end_encode", [ascending["sequence_number"].combine_chunks()])
    structs = pa.StructArray.from_arrays(
        [ascending[field.name].combine_chunks() for field in HISTORY_FIELDS], fields=list(HISTORY_FIELDS)
    )
    histories = pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), runs.run_ends]), structs)
    places: Any = pc.index_in(messages["sequence_number"], value_set=runs.values)
    return messages.append_column(ARCHIVE.schema.field(HISTORY), histories.take(places.combine_chunks()))


def without_history(columns: Sequence[str]) -> list[str]:
    """Return the columns that the archive's own table has."""
    return [name for name in columns if name != HISTORY]
