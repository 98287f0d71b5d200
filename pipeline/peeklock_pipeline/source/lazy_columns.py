"""`read`: the archive as a DataFrame that reads bodies and histories only for rows and queries that use them.

Spark 4.3 does not tell a Python data source which columns a query uses. But its optimizer leaves out a function whose
result is not used. So here the columns `body` and `history` are functions of the message's batch and number.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from peeklock_pipeline.conditions import Condition
from peeklock_pipeline.database import Database
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.lake_archive import LakeArchive
from peeklock_pipeline.source.options import UNSELECTED_BY_DEFAULT, ReadOptions
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGE_COLUMNS


def read(spark: SparkSession, **options: str) -> DataFrame:
    """Return every column of the archive or of a lake, for a query that reads only what it uses.

    `options` are those of the format. Of a lake, Spark reads the Parquet files, and of each only the columns in use.
    Of the server's archive, the other columns are read always, and `body` and `history` where a row needs them: by its
    number, for as many rows at a time as `spark.sql.execution.arrow.maxRecordsPerBatch` says. Refuses with `BadOption`,
    `BadDatabaseUrl` and `BadLake`.
    """
    found = ReadOptions.of(options)
    if isinstance(found.origin, LakeArchive):
        rows = found.origin.lake.read(spark).select(*MESSAGE_COLUMNS)
        return rows if found.from_batch is None else rows.where(fn.col("export_batch") >= found.from_batch)
    rows = spark.read.format("peeklock").options(**options).load()
    lazy = {name: lazy_column(found.origin.database, name) for name in UNSELECTED_BY_DEFAULT}
    return rows.withColumns(lazy).select(*MESSAGE_COLUMNS)


def lazy_column(database: Database, name: str) -> Column:
    """Return a column of sealed messages that is read by their batch and number."""
    kind = from_arrow_schema(ARCHIVE.schema)[name].dataType
    exact = to_arrow_type(kind, timezone="UTC")

    def values(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        for export_batch, sequence_number in batches:
            yield _values(database, name, export_batch, sequence_number).cast(exact)

    arrow_udf: Any = fn.arrow_udf
    return arrow_udf(values, kind)("export_batch", "sequence_number")


def _values(database: Database, name: str, batches: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return the values of these messages, in their order. Refuses with `BatchesLost` if one is gone."""
    if not len(numbers):
        return pa.nulls(0, ARCHIVE.schema.field(name).type)
    bounds: Any = pc.min_max(batches)
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    wanted: Any = tuple(numbers.to_pylist())
    chosen = [Condition("sequence_number", "=", wanted)]
    found: Any = pa.concat_tables(database.chunks(first, last, ["sequence_number", name], chosen)).combine_chunks()
    places: Any = pc.index_in(numbers, value_set=found["sequence_number"].combine_chunks())
    if places.null_count:
        raise BatchesLost(
            f"The archive no longer has {messages(places.null_count)} of the batches {first} to {last}: retention or a trim "
            "removed them while they were being read. Read again, or read the lake."
        )
    return found[name].combine_chunks().take(places)
