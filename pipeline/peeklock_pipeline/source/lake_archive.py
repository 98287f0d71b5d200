"""The archive of a lake as an origin: an offset is the number of an exported batch.

The rows of a batch stay the same in every version of the table, until the lake's retention removes some of them. So a
micro-batch that runs again after a compaction or a vacuum reads the same rows from other files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from peeklock_pipeline.conditions import Condition, all_of, batches_between
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.first_batch import first_batch_of
from peeklock_pipeline.lake import REMOVAL_KEY_PREFIX, Lake
from peeklock_pipeline.logged_files import require_files
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BadLake, BatchesLost
from peeklock_pipeline.source.lake_files import files_with, rows_of_files
from peeklock_pipeline.source.origins import CHUNK_ROWS, Offset, Plan
from peeklock_pipeline.table_specs import ARCHIVE, MISSED, REMOVED, TableSpec
from peeklock_pipeline.tables import export_position_of

TASK_BYTES = 64 << 20
"""The size of the files of one task. A single file may be larger."""

TASK_FILES = 1000
"""The number of files of one task: opening one takes about a millisecond."""

READ_AGAIN = "If a compaction replaced it and a vacuum removed it meanwhile, read again."
"""What a reader does about a file that it cannot read, where audit would find nothing."""

NO_TABLE = -1
"""The version of a table that did not exist."""


@dataclass(frozen=True)
class LakeTask(InputPartition):
    """Files of the lake that one task reads, and the batches of which it takes rows."""

    files: tuple[DataFile, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LakeArchive:
    """The exported batches of a lake."""

    lake: Lake

    def first_offset(self, from_batch: int | None) -> Offset:
        """Return the offset before a batch, or before the first one of the lake.

        It also has the versions of the tables that name what is gone: the stream does not miss what was gone before it
        began.
        """
        first = from_batch or self._begun(self.lake.archive_table())
        return {"batch": first - 1} | {spec.name: self._version(spec) for spec in (REMOVED, MISSED)}

    def last_batch(self, after: int = 0, most: int | None = None) -> int:
        """Return the last exported batch, of the first `most` after a number."""
        last = export_position_of(self.lake.archive_table()).number
        return max(after, last if most is None else min(last, after + most))

    def plan(self, start: Offset, last: int | None, conditions: Sequence[Condition] = ()) -> Plan:
        """Return the files in which a row of these batches may meet the conditions."""
        table = self.lake.archive_table()
        first, last = start["batch"] + 1, export_position_of(table).number if last is None else last
        chosen = (*batches_between(first, last), *conditions)
        tasks = [LakeTask(tuple(files), first, last) for files in grouped(files_with(table, chosen))]
        return Plan(tasks, self._lost(table, start, first, last))

    def rows(
        self, task: InputPartition, schema: StructType, conditions: Sequence[Condition] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of these files that meet the conditions.

        Refuses with `BatchesLost` if a file is gone or was replaced.
        """
        assert isinstance(task, LakeTask)
        exact = to_arrow_schema(schema, timezone="UTC")
        chosen = all_of((*batches_between(task.first, task.last), *conditions))
        try:
            require_files(task.files, self.lake.directory(ARCHIVE))
            for batch in rows_of_files(self.lake, task.files, schema.fieldNames(), chosen):
                yield from pa.Table.from_batches([batch]).cast(exact).to_batches(max_chunksize=CHUNK_ROWS)
        except BadLake as error:
            raise BatchesLost(f"{error} {READ_AGAIN}") from error
        except (OSError, pa.ArrowInvalid) as error:
            reason = " ".join(str(error).split())
            raise BatchesLost(f"A file of {self.lake.root} cannot be read ({reason}). {READ_AGAIN}") from error

    def _lost(self, table: DeltaTable, start: Offset, first: int, last: int) -> str | None:
        """Return a sentence about messages of these batches that are gone at this version, and were not at the start."""
        begun = self._begun(table)
        if first < begun:
            return (
                f"Batches {first} to {min(last, begun - 1)} are not in {self.lake.root}, which begins with batch {begun}. "
                f"Set the option fromBatch={begun}, or continue with failOnDataLoss=false."
            )
        removals = [row for row in self._rows(REMOVED, start, first, last) if _is_done(table, row["removal"])]
        gone = [*removals, *self._rows(MISSED, start, first, last)]
        if not gone:
            return None
        numbers = [row["export_batch"] for row in gone]
        return (
            f"{messages(sum(row['messages'] for row in gone))} of the batches {min(numbers)} to {max(numbers)} are gone from "
            f"{self.lake.root}, by its retention or before an export, and this stream had not read them. Continue with "
            "the option failOnDataLoss=false."
        )

    def _rows(self, spec: TableSpec, start: Offset, first: int, last: int) -> list[dict[str, Any]]:
        """Return what a table names of these batches beyond what it named when the stream began."""
        table, known = self.lake.table(spec), start.get(spec.name, NO_TABLE)
        if table is None or table.version() == known:
            return []
        rows = _named(table, first, last)
        if not rows or known == NO_TABLE:
            return rows
        try:
            table.load_as_version(known)
            before = _named(table, first, last)
        except (DeltaError, OSError):  # that version is gone
            return rows
        return [row for row in rows if row not in before]

    def _begun(self, table: DeltaTable) -> int:
        return first_batch_of(table, self.lake.directory(ARCHIVE)).number

    def _version(self, spec: TableSpec) -> int:
        table = self.lake.table(spec)
        return NO_TABLE if table is None else table.version()


def grouped(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files of each task."""
    some: list[DataFile] = []
    size = 0
    for file in files:
        if some and (size + file.size > TASK_BYTES or len(some) == TASK_FILES):
            yield some
            some, size = [], 0
        some.append(file)
        size += file.size
    if some:
        yield some


def _named(table: DeltaTable, first: int, last: int) -> list[dict[str, Any]]:
    rows = table.to_pyarrow_dataset().to_table(filter=all_of(batches_between(first, last)))
    return pa.table(rows).to_pylist()


def _is_done(table: DeltaTable, removal: str) -> bool:
    return table.transaction_version(f"{REMOVAL_KEY_PREFIX}{removal}") is not None
