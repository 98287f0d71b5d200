"""The Spark data source `peeklock`: the archive as a table or a stream, and a queue as somewhere to write to.

register(spark)
spark.read.format("peeklock").option("database_url", ...).load()
spark.readStream.format("peeklock").option("database_url", ...).load()
df.write.format("peeklock").options(url=..., queue=...).mode("append").save()
df.writeStream.format("peeklock").options(url=..., queue=...).option("checkpointLocation", ...).start()

Streams that read are best started by `begin`.
"""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from peeklock_pipeline.source.options import ReadOptions, WriteOptions
from peeklock_pipeline.source.reading import ArchiveReader, FilteringReader
from peeklock_pipeline.source.streaming import ArchiveStream, begin
from peeklock_pipeline.source.writing import QueueStreamWriter, QueueWriter, open_sender

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark refuses a reader that takes filters unless this setting allows it, so register again after changing it."""

__all__ = ["PUSHDOWN", "PeeklockSource", "begin", "register"]


def register(spark: SparkSession) -> None:
    """Make this session know the format `peeklock`."""
    allows_filters = spark.conf.get(PUSHDOWN, "false") == "true"
    spark.dataSource.register(FilteringSource if allows_filters else PeeklockSource)


class PeeklockSource(DataSource):
    """See `ReadOptions` and `WriteOptions` for what it is told."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "peeklock"

    def schema(self) -> StructType:
        """The columns that are asked for; refuses with `BadOption`."""
        return ReadOptions.of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Sealed batches of the archive, as they are now."""
        return ArchiveReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> ArchiveStream:
        """Sealed batches of the archive, as they come."""
        return ArchiveStream(ReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        """A queue to which rows are sent; refuses with `BadOption`, `BadColumns` and `ServerUnavailable`."""
        return QueueWriter(open_sender(WriteOptions.of(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:
        """A queue to which the rows of each micro-batch are sent; refuses as `writer` does."""
        return QueueStreamWriter(open_sender(WriteOptions.of(self.options), schema, overwrite))


class FilteringSource(PeeklockSource):
    """The same where the session lets readers see filters: batches that they exclude are not read at all."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Sealed batches of the archive, as they are now, without those that filters exclude."""
        return FilteringReader(ReadOptions.of(self.options), schema)
