"""`spark.read.format("peeklock")`: sealed batches of the archive or of a lake as Arrow record batches."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from peeklock_pipeline.conditions import Condition
from peeklock_pipeline.source.filters import conditions_of
from peeklock_pipeline.source.options import ReadOptions, check_columns

NOTHING = InputPartition(None)
"""The task of a plan without tasks. Spark would put one of its own into an empty list."""


class ArchiveReader(DataSourceReader):
    """Reads all sealed batches that are left, from `fromBatch` on."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(tuple(schema.fieldNames()))
        self.options = options
        self.schema = schema
        self.conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        plan = self.options.origin.plan({"batch": (self.options.from_batch or 1) - 1}, None, self.conditions)
        return list(plan.tasks) or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task; refuses as `Origin.rows` does."""
        if type(partition) is InputPartition:
            return iter(())
        return self.options.origin.rows(partition, self.schema, self.conditions)


class FilteringReader(ArchiveReader):
    """Leaves out batches, files and rows that cannot pass the filters. Spark still checks every row that it gets."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what the source can check, and leave all filters to Spark."""
        self.conditions = conditions_of(filters)
        return filters
