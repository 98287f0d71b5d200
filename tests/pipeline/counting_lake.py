"""A lake that records what jobs read of its archive."""

from __future__ import annotations

from collections.abc import Sequence

from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.ranges import Conversion
from peeklock_pipeline.table_specs import ARCHIVE, TableSpec
from pyspark.sql import DataFrame, SparkSession


class CountingLake(Lake):
    """A lake that records the number of files, and of columns, of each read of messages."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.root)
        self.reads: list[tuple[int, int]] = []

    def read_files(self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec = ARCHIVE) -> DataFrame:
        if spec.name == ARCHIVE.name and files:
            self.reads.append((len(files), len(spec.schema)))
        return super().read_files(spark, files, spec)

    def convert_files(
        self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec, conversion: Conversion
    ) -> DataFrame:
        if files:
            self.reads.append((len(files), len(spec.schema)))
        return super().convert_files(spark, files, spec, conversion)

    def files_read(self) -> list[int]:
        """The number of files of each read."""
        return [files for files, _ in self.reads]
