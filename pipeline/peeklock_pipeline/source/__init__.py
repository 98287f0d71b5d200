"""The Spark data source `peeklock`: the archive as a table or a stream, and a queue as a sink.

register(spark)
spark.read.format("peeklock").option("databaseUrl", ...).load()
spark.readStream.format("peeklock").option("databaseUrl", ...).load()   # both also with the option `lake`
df.write.format("peeklock").options(url=..., queue=...).mode("append").save()
df.writeStream.format("peeklock").options(url=..., queue=...).option("checkpointLocation", ...).start()

Start reading streams with `begin`. `read` reads the columns that a query uses, `views` makes SQL views over a lake.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from peeklock_pipeline.jobs.views import register_duckdb, register_spark
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.source.lazy_columns import read
from peeklock_pipeline.source.options import ReadOptions, WriteOptions
from peeklock_pipeline.source.reading import ArchiveReader, FilteringReader
from peeklock_pipeline.source.streaming import ArchiveStream, begin
from peeklock_pipeline.source.writing import QueueStreamWriter, QueueWriter, open_sender

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark refuses a reader that accepts filters unless this setting allows it. Register again after changing it."""

__all__ = ["PUSHDOWN", "PeeklockSource", "begin", "duckdb_views", "read", "register", "views"]


def register(spark: SparkSession) -> None:
    """Register the format `peeklock` in this session, and let Spark pass filters to it.

    Sets `PUSHDOWN`, unless the session or its configuration has set it to false. It changes nothing for other sources:
    Spark refuses those that accept filters without it.
    """
    if spark.conf.get(PUSHDOWN, "true") == "true":
        spark.conf.set(PUSHDOWN, "true")
        spark.dataSource.register(FilteringSource)
    else:
        spark.dataSource.register(PeeklockSource)


def views(spark: SparkSession, lake: str | Path | Lake) -> None:
    """Make the views `messages`, `deliveries`, `dead_letters` and `waiting_time` over a lake as temporary views.

    They show the lake as it is now. Refuses with `BadLake`.
    """
    register_spark(spark, _lake(lake))


def duckdb_views(connection: Any, lake: str | Path | Lake) -> None:
    """Make the same views in a connection of DuckDB, which reads the lake through pyarrow. Refuses with `BadLake`."""
    register_duckdb(connection, _lake(lake))


def _lake(place: str | Path | Lake) -> Lake:
    return place if isinstance(place, Lake) else Lake(place)


class PeeklockSource(DataSource):
    """The source. `ReadOptions` and `WriteOptions` describe its options."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "peeklock"

    def schema(self) -> StructType:
        """Return the requested columns; refuses with `BadOption`."""
        return ReadOptions.of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the batches that are sealed now."""
        return ArchiveReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> ArchiveStream:
        """Return a reader of batches as they are sealed."""
        return ArchiveStream(ReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        """Return a writer to a queue; refuses with `BadOption`, `BadColumns` and `ServerUnavailable`."""
        return QueueWriter(open_sender(WriteOptions.of(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        """Return a writer that sends the rows of each micro-batch; refuses as `writer` does."""
        return QueueStreamWriter(open_sender(WriteOptions.of(self.options), schema, overwrite))


class FilteringSource(PeeklockSource):
    """The source for sessions that pass filters to readers."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the batches that are sealed now, without rows that filters exclude."""
        return FilteringReader(ReadOptions.of(self.options), schema)
