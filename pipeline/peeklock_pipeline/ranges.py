"""Ranges of numbers, each read from the database by a task of its own, which hands on rows or writes them as files."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from peeklock_pipeline import refusals
from peeklock_pipeline.columns import Shape
from peeklock_pipeline.files import DataFile, write

Range = tuple[int, int]
"""The first and the last number of a range."""

Read = Callable[[int, int], Iterable[pa.Table]]
"""Reads a range, in tables that fit into memory."""

MOST_RANGES = 256
"""Tasks that a range of numbers is cut into at most, however sparse it is."""

FILES = "path string, partition map<string,string>, rows bigint, size bigint"
FILES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.map_(pa.string(), pa.string())),
        ("rows", pa.int64()),
        ("size", pa.int64()),
    ]
)


def even(first: int, last: int, most: int) -> list[Range]:
    """A range in ranges of as many numbers each, `most` or, where that gave too many tasks, more."""
    width = max(most, (last - first) // MOST_RANGES + 1)
    return [(begin, min(begin + width - 1, last)) for begin in range(first, last + 1, width)]


def rows_of(spark: SparkSession, ranges: Sequence[Range], read: Read, shape: Shape) -> DataFrame:
    """The rows of these ranges, read whenever the DataFrame is asked."""

    def hand_on(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, last in _chosen(ranges, indexes):
            for piece in read(first, last):
                yield from piece.to_batches()

    return _spread(spark, ranges).mapInArrow(hand_on, from_arrow_schema(shape.schema))


def write_ranges(
    spark: SparkSession, ranges: Sequence[Range], read: Read, directory: Path, shape: Shape
) -> list[DataFile]:
    """Have the executors write the rows of these ranges as files, which belong to nothing yet.

    Refuses with what a task refuses, and with `TasksFailed` where tasks die again and again.
    """

    def write_range(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, last in _chosen(ranges, indexes):
            for piece in read(first, last):
                yield _listed(write(piece, directory, shape))

    with told():
        files = _spread(spark, ranges).mapInArrow(write_range, FILES).collect()
    return [DataFile(file.path, file.partition, file.rows, file.size) for file in files]


def _spread(spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
    """The indexes of these ranges, each for a task of its own."""
    return spark.range(0, len(ranges), 1, max(len(ranges), 1))


def _chosen(ranges: Sequence[Range], indexes: Iterable[pa.RecordBatch]) -> Iterator[Range]:
    return (ranges[row["id"]] for batch in indexes for row in batch.to_pylist())


def _listed(files: Iterable[DataFile]) -> pa.RecordBatch:
    rows = [
        {"path": one.path, "partition": list(one.partition.items()), "rows": one.rows, "size": one.size}
        for one in files
    ]
    return pa.RecordBatch.from_pylist(rows, schema=FILES_SCHEMA)


IN_A_TASK = re.compile(r"peeklock_pipeline\.refusals\.(\w+): (.+)")
"""How a refusal of a task ends the traceback that Spark brings to the driver."""


@contextmanager
def told() -> Iterator[None]:
    """Refuse with what Spark's tasks have refused, and with `TasksFailed` where they have failed without a word."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if not (found := IN_A_TASK.search(str(error))):
            raise refusals.TasksFailed(
                f"Spark could not do it, also when it repeated it: {_first_line(error)}"
            ) from error
        raise getattr(refusals, found[1])(found[2]) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Reason" in line or "Exception:" in line), lines[0])
