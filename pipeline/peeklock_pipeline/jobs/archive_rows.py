"""The messages of a lake at one version, read for a range of batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.files import DataFile, files_of, missing_files, portions_of
from peeklock_pipeline.jobs.batch_portions import LOWEST
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE, TableSpec

IDS = replace(ARCHIVE, schema=pa.schema([ARCHIVE.schema.field(name) for name in ("message_id", "export_batch")]))
"""The columns of the archive in which a senders' log is looked up."""


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """The messages of a lake's archive. `gone` are its files that are missing or cannot be read.

    `rows` are as many as the log of the table has; None if it does not have the number for each file.
    """

    spark: SparkSession
    lake: Lake
    table: DeltaTable
    gone: Sequence[DataFile]
    rows: int | None

    @classmethod
    def of(cls, spark: SparkSession, lake: Lake, table: DeltaTable) -> "ArchiveRows":
        """Look at every file. Refuses with `LakeUnavailable`."""
        gone, rows, is_known = list[DataFile](), 0, True
        for files in portions_of(table):
            gone += missing_files(files, lake.directory(ARCHIVE))
            rows += sum(file.rows for file in files)
            is_known = is_known and all(file.rows for file in files)
        return cls(spark, lake, table, gone, rows if is_known else None)

    def between(self, low: int, high: int, spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return the messages of batches above `low`, up to `high`, from the files that may have some."""
        gone = {file.path for file in self.gone}
        files = [file for file in files_of(self.table, {"export_batch": (low + 1, high)}) if file.path not in gone]
        number = F.col("export_batch")
        return self.lake.read_files(self.spark, files, spec).where((number > low) & (number <= high))

    def ids_up_to(self, batch: int) -> DataFrame:
        """Return the message ids of the batches up to one; none for 0."""
        return self.between(LOWEST if batch else 0, batch, IDS).select("message_id")
