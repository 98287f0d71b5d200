"""Ranges of numbers and of files. One task reads one range, and returns its rows or writes them to files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from peeklock_pipeline.files import LISTING, DataFile, listed, listing, read, write
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec
from peeklock_pipeline.task_refusals import task_refusals

Range = tuple[int, int]
"""The first and the last number of a range."""

Read = Callable[[int, int], Iterable[pa.Table]]
"""Reads a range, in tables that fit into memory."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a task converts the rows that it has read, and the columns of the result."""

    convert: Callable[[pa.Table], pa.Table]
    result: TableSpec


MAX_RANGES = 256
"""The largest number of tasks for a range of numbers, even if it is sparse."""

READ_BYTES = 128 << 20
"""About how many bytes of files one task reads, with the cost of opening each. More, if this made too many tasks."""

OPEN_BYTES = 4 << 20
"""What opening a file costs, in bytes that a task reads meanwhile; the same as Spark assumes."""

MAX_FILE_RANGES = 10_000
"""About the largest number of tasks that read files."""


def even_ranges(first: int, last: int, max_width: int) -> list[Range]:
    """Split a range into equal ranges of `max_width` numbers, or of more if that gave too many tasks."""
    width = max(max_width, (last - first) // MAX_RANGES + 1)
    return [(begin, min(begin + width - 1, last)) for begin in range(first, last + 1, width)]


def file_ranges(sizes: Sequence[int], cores: int) -> list[Range]:
    """Split files of these sizes into ranges of their places, each for one task: one for each core, or more if they are
    large. A task of few small files would cost more to start than to run."""
    costs = [size + OPEN_BYTES for size in sizes]
    most = max(min(sum(costs) // cores, READ_BYTES), sum(costs) // MAX_FILE_RANGES)
    ranges, cost = list[Range](), 0
    for place, more in enumerate(costs):
        if ranges and cost + more <= most:
            ranges[-1], cost = (ranges[-1][0], place), cost + more
        else:
            ranges.append((place, place))
            cost = more
    return ranges


def rows_of(spark: SparkSession, ranges: Sequence[Range], read_range: Read, spec: TableSpec) -> DataFrame:
    """Return the rows of these ranges. Each query of the DataFrame reads them again."""

    def read_rows(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, last in _ranges_at(ranges, indexes):
            for chunk in read_range(first, last):
                yield from chunk.to_batches()

    # A damaged file may have a null in any column, and Spark looks for none in a column that is declared without nulls.
    nullable = pa.schema([field.with_nullable(True) for field in spec.schema])
    return _range_indexes(spark, ranges).mapInArrow(read_rows, from_arrow_schema(nullable))


def rows_of_files(
    spark: SparkSession, files: Sequence[DataFile], directory: Storage, spec: TableSpec, conversion: Conversion
) -> DataFrame:
    """Return what a conversion makes of the rows of files, in the columns of `spec`.

    Arrow reads the files, in the tasks. Each query of the DataFrame reads them again.
    """

    def read_range(first: int, last: int) -> Iterator[pa.Table]:
        for file in files[first : last + 1]:
            for batch in read(file, directory, spec.schema):
                yield conversion.convert(pa.Table.from_batches([batch]))

    ranges = file_ranges([file.size for file in files], spark.sparkContext.defaultParallelism)
    return rows_of(spark, ranges, read_range, conversion.result)


def write_ranges(
    spark: SparkSession, ranges: Sequence[Range], read_range: Read, directory: Storage, spec: TableSpec
) -> list[DataFile]:
    """Have the executors write the rows of these ranges to files, which belong to no table yet.

    Refuses as the tasks do, and with `TasksFailed` if tasks crash repeatedly.
    """

    def write_range(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, last in _ranges_at(ranges, indexes):
            for chunk in read_range(first, last):
                yield listing(write(chunk, directory, spec))

    with task_refusals():
        return listed(_range_indexes(spark, ranges).mapInArrow(write_range, LISTING).collect())


def _range_indexes(spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
    """Return the indexes of these ranges, one task for each."""
    return spark.range(0, len(ranges), 1, max(len(ranges), 1))


def _ranges_at(ranges: Sequence[Range], indexes: Iterable[pa.RecordBatch]) -> Iterator[Range]:
    return (ranges[row["id"]] for batch in indexes for row in batch.to_pylist())
