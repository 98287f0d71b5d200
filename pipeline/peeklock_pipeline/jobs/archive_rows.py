"""The messages of a lake at one version, read for a range of batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.histories import without_history
from peeklock_pipeline.jobs.batch_portions import LOWEST
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.located_rows import events_in_lake, located_events, located_in_lake
from peeklock_pipeline.logged_files import DamagedFile, LoggedFiles, damaged_files, files_of, require_files
from peeklock_pipeline.ranges import Conversion
from peeklock_pipeline.row_checksums import EDITED_ROWS, edited_in_lake
from peeklock_pipeline.table_specs import (
    ARCHIVE,
    EVENT_DIGESTS,
    HISTORY,
    HISTORY_FIELDS,
    LOCATED_ROWS,
    MESSAGE_COLUMNS,
    TableSpec,
)

IDS = ARCHIVE.with_columns("message_id", "export_batch")
"""The columns of the archive in which a senders' log is looked up."""

ANY_EVENTS = pa.list_(pa.struct([field.with_nullable(True) for field in HISTORY_FIELDS]))
"""The type of the histories of a damaged lake: any value of an event may be null, and is then found by its digest."""

WITHOUT_HISTORIES = ARCHIVE.with_columns(*without_history(MESSAGE_COLUMNS))
WHOLE_ROWS = replace(
    ARCHIVE,
    schema=pa.schema([field for field in ARCHIVE.schema if field.name != HISTORY] + [pa.field(HISTORY, ANY_EVENTS)]),
)
HISTORIES = WHOLE_ROWS.with_columns("sequence_number", "export_batch", HISTORY)


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """The messages of a lake's archive. `damaged` are its files that are missing or replaced.

    `rows` are as many as the log of the table has; None if it does not have the number for each file.
    """

    spark: SparkSession
    lake: Lake
    table: DeltaTable
    damaged: Sequence[DamagedFile]
    rows: int | None

    @classmethod
    def of(cls, spark: SparkSession, lake: Lake, table: DeltaTable) -> "ArchiveRows":
        """Look at every file. Refuses with `LakeUnavailable`."""
        files = files_of(table)
        return cls(spark, lake, table, damaged_files(files, lake.directory(ARCHIVE)), files.rows)

    @classmethod
    def unchecked(cls, spark: SparkSession, lake: Lake, table: DeltaTable) -> "ArchiveRows":
        """Look at no file. Call `require_files` before messages are read."""
        return cls(spark, lake, table, [], None)

    def require_files(self, low: int, high: int) -> None:
        """Refuse with `BadLake` if a file that may have messages of these batches is missing or was replaced."""
        require_files(self._files_between(low, high), self.lake.directory(ARCHIVE))

    def between(self, low: int, high: int, spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return the messages of batches above `low`, up to `high`, from the files that may have some."""
        number = F.col("export_batch")
        rows = self.lake.read_files(self.spark, self._files_between(low, high), spec)
        return rows.where((number > low) & (number <= high))

    def ids_up_to(self, batch: int) -> DataFrame:
        """Return the message ids of the batches up to one; none for 0."""
        return self.between(LOWEST if batch else 0, batch, IDS).select("message_id")

    def located(self, low: int, high: int) -> DataFrame:
        """Return the messages of these batches without their content (`LOCATED_ROWS`)."""
        return self._converted(low, high, WITHOUT_HISTORIES, Conversion(located_in_lake, LOCATED_ROWS))

    def events(self, low: int, high: int) -> DataFrame:
        """Return the digests of the events of these batches (`EVENT_DIGESTS`)."""
        return self._converted(low, high, HISTORIES, Conversion(_located_events, EVENT_DIGESTS))

    def edited(self, batches: Sequence[int]) -> DataFrame:
        """Return the messages of these batches (`EDITED_ROWS`) that do not match their checksums."""
        conversion = Conversion(edited_in_lake, EDITED_ROWS)
        found = self._converted(min(batches) - 1, max(batches), WHOLE_ROWS, conversion)
        return found.where(F.col("export_batch").isin(*batches))

    def _converted(self, low: int, high: int, spec: TableSpec, conversion: Conversion) -> DataFrame:
        number = pc.field("export_batch")
        chosen = (number > low) & (number <= high)
        if low == LOWEST:
            chosen = chosen | number.is_null()  # in no batch, so no later audit would read it

        def convert(rows: pa.Table) -> pa.Table:
            return conversion.convert(rows.filter(chosen))

        return self.lake.convert_files(
            self.spark, self._files_between(low, high), spec, Conversion(convert, conversion.result)
        )

    def _files_between(self, low: int, high: int) -> LoggedFiles:
        gone = [damaged.file.path for damaged in self.damaged if damaged.is_gone]
        return files_of(self.table, {"export_batch": (low + 1, high)}).without(gone)


def _located_events(rows: pa.Table) -> pa.Table:
    return located_events(events_in_lake(rows), "lake")
