"""The first batch of a lake, recorded in the lake's first commit.

A transaction of the Delta log holds the number, so no change of rows or files can alter it. Lakes of earlier versions
have no such record. For them the number is derived from the first commit of the log, until the next export records it.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.storage import Storage

FIRST_BATCH_KEY = "peeklock-begun"
"""The application whose transaction version is the number of the lake's first batch."""

LAST_BATCH_KEY = "peeklock-export"
"""The application whose transaction version is the number of the last batch exported."""


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """The number of the first batch that a lake holds; `noted` is False if the lake has no record of it."""

    number: int
    noted: bool


def first_batch_of(table: DeltaTable, storage: Storage) -> FirstBatch:
    """Return the first batch of an archive table: as recorded, else from its first commit, else from its files."""
    noted = table.transaction_version(FIRST_BATCH_KEY)
    if noted is not None:
        return FirstBatch(noted, True)
    first = _first_version(storage) or table
    last = first.transaction_version(LAST_BATCH_KEY) or 0
    if not first.file_uris():
        return FirstBatch(last + 1, False)
    # If the files are gone, the commit still has the number of its last batch.
    lowest = [number for version in (first, table) for number in _lowest(version, storage)[:1]]
    return FirstBatch(min([*lowest, last]), False)


def _first_version(storage: Storage) -> DeltaTable | None:
    """Return the table at its first version; None if the log has been cleaned up since."""
    try:
        return DeltaTable(str(storage), version=0, storage_options=storage.storage_options())
    except DeltaError:
        return None


def _lowest(table: DeltaTable, storage: Storage) -> list[int]:
    """Return the lowest batch number of each readable file, ascending, from the statistics in its footer."""
    found: list[int] = []
    filesystem = storage.filesystem()
    for file in files_of(table):
        try:
            with filesystem.open_input_file(file.path) as stream:
                footer = pq.read_metadata(stream)
        except (OSError, pa.ArrowInvalid):
            continue
        place = footer.schema.to_arrow_schema().get_field_index("export_batch")
        groups = [footer.row_group(index).column(place).statistics for index in range(footer.num_row_groups)]
        found += [int(group.min) for group in groups if group is not None and group.min is not None]
    return sorted(found)
