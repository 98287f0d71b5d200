"""A sealed archive filled by SQL, and the two that copy it into Parquet files: our export, and Spark's JDBC reader."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pyarrow.parquet as pq
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import COMPRESSION
from peeklock_pipeline.histories import without_history
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from peeklock_pipeline.table_specs import ARCHIVE, ARCHIVE_COLUMNS, MESSAGE_COLUMNS
from pyspark.sql import SparkSession

from app.store.migrate import migrate
from benchmarks.bench import Bench
from benchmarks.jdbc_driver import JARS, jdbc_driver
from benchmarks.machine import TreeCpu, cpu_seconds
from benchmarks.systems import empty_database

CORES = 2
QUEUES = 4
BATCH_ROWS = 10_000
TIMEOUT_SECONDS = 1800.0

JDBC_FETCH_ROWS = 10_000
JDBC_TASKS = 2 * CORES
JDBC_COMPRESSION = {"compression": COMPRESSION, "parquet.compression.codec.zstd.level": "1"}
"""Arrow, which writes our files, compresses with this level."""

DAY = 86_400_000_000

BEGIN = 1_780_000_000_000_000
"""The microsecond in which the first message ended, at half past eight in the evening; the last one ends a day later."""

FILL = """
INSERT INTO archive (sequence_number, queue_id, queue, outcome, settled_at, remove_at, lock_token, priority, enqueued_at,
    available_at, first_delivered_at, last_delivered_at, delivery_count, failure_count, message_id, headers, properties,
    body_kind, body, export_batch)
SELECT n, n % $2, 'queue-' || n % $2, 'completed', ended, ended + 2592000000000, decode(md5(n::text), 'hex'), 4,
    ended - 2000000, ended - 2000000, ended - 1000000, ended - 1000000, 1, 0, 'filled-' || n, '{}', '{"tenant":"a"}',
    1, convert_to('{"text":"' || rpad(text, 1013, 'the quick brown fox ') || '"}', 'UTF8'), 0
FROM (
    SELECT n, $3::bigint + n * ($4::bigint / $1) AS ended,
        (SELECT string_agg(md5(n || '.' || part), ' ') FROM generate_series(1, 8) AS part) AS text
    FROM generate_series(1, $1::bigint) AS n
) AS messages
"""
"""A quarter of each body is unique, so that compression has work to do."""
SEAL = """
INSERT INTO archive_seal (sequence_number, remove_at, export_batch)
SELECT sequence_number, remove_at, 1 + (sequence_number - 1) / $1 FROM archive
"""
ADD_BATCHES = """
INSERT INTO export_batch (number, row_count, digest, sealed_at, remove_at)
SELECT s.export_batch, count(*),
    encode(sha256(convert_to(string_agg(sequence_number || E'\\n', '' ORDER BY sequence_number), 'UTF8')), 'hex'),
    max(a.settled_at) + 10000000, max(a.remove_at)
FROM archive AS a JOIN archive_seal AS s USING (sequence_number) GROUP BY s.export_batch
"""
"""What the server stores about each batch when it seals it."""

SEALED_COLUMNS = ", ".join(
    f"{'s' if name == 'export_batch' else 'a'}.{name}" for name in without_history(ARCHIVE_COLUMNS)
)
SEALED_TABLE = f"(SELECT {SEALED_COLUMNS} FROM archive AS a JOIN archive_seal AS s USING (sequence_number)) AS sealed"

LAKE_COLUMNS = {
    "date": "to_date(timestamp_micros(settled_at))",
    **{
        name: f"timestamp_micros({name})"
        for name in (
            "settled_at", "enqueued_at", "available_at", "expires_at", "first_delivered_at", "last_delivered_at",
        )
    },
    "lock_token": "concat_ws('.', sequence_number, lower(hex(lock_token)))",
    "body_kind": "element_at(array('none', 'json', 'bytes'), body_kind + 1)",
}  # fmt: skip
"""Columns that the lake stores in another form than the archive, in Spark's SQL."""


CopyJob: TypeAlias = Callable[[Path], int]
"""Copies an archive into a new directory, and returns how many messages it copied."""


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """CPU seconds of a copy: of the JVM, the driver and its workers together, and of PostgreSQL separately."""

    spark: float
    postgres: float


@dataclass(frozen=True, slots=True)
class Archive:
    """Sealed messages of 1 KiB in their own database."""

    url: str
    rows: int

    @property
    def batches(self) -> int:
        """How many batches they are sealed in."""
        return -(-self.rows // BATCH_ROWS)


@contextmanager
def sealed_archive(bench: Bench, name: str, rows: int, *, queues: int = QUEUES, days: int = 1) -> Iterator[Archive]:
    """A migrated database with a full, vacuumed archive of these numbers of queues and days, dropped after the row."""
    with empty_database(bench.postgres, name) as url:
        migrate(url)
        began = time.monotonic()
        asyncio.run(_fill(url, rows, queues, days))
        print_progress(f"{rows:,} messages archived and sealed in {time.monotonic() - began:.0f} s")
        yield Archive(url, rows)


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The session that `peeklock-pipeline` opens on one machine, with `CORES` cores and the JDBC driver."""
    if (driver := jdbc_driver()) is None:
        raise SystemExit(f"PostgreSQL's driver for Java is not in {JARS}: apt-get install libpostgresql-jdbc-java.")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {driver} pyspark-shell"
    spark = open_session(f"local[{CORES},4]", "peeklock-bench")
    try:
        yield spark
    finally:
        spark.stop()


def cost(bench: Bench, name: str, archive: Archive, copy: CopyJob) -> CpuSeconds:
    """Return the cost of one copy, and remove the copy.

    Every message must be in it.
    """
    target = bench.folder / "copy"
    spark, began = _spark_cpu(bench), time.monotonic()
    before, postgres = spark.seconds(), cpu_seconds([bench.postgres.pid])
    with spark.watched():
        arrived = copy(target)
    seconds = time.monotonic() - began
    spent = CpuSeconds(spark.seconds() - before, cpu_seconds([bench.postgres.pid]) - postgres)
    shutil.rmtree(target)
    if arrived != archive.rows:
        raise RuntimeError(f"{name} brought {arrived} messages of {archive.rows}")
    print_progress(
        f"{name}, {arrived:,} messages: {spent.spark:.2f} s CPU, PostgreSQL {spent.postgres:.2f} s, {seconds:.0f} s"
    )
    return spent


@contextmanager
def measured_job(bench: Bench, place: Path) -> Iterator[Callable[[str, Callable[[], object]], float]]:
    """Yield what runs a job and returns its cost, without the database's, in microseconds. The lake is removed after it."""

    def spent(name: str, job: Callable[[], object]) -> float:
        spark, began = _spark_cpu(bench), time.monotonic()
        before = spark.seconds()
        with spark.watched():
            job()
        cost = spark.seconds() - before
        print_progress(f"{name}: {cost:.2f} s CPU, {time.monotonic() - began:.0f} s")
        return cost * 1_000_000

    try:
        yield spent
    finally:
        shutil.rmtree(place, ignore_errors=True)


def by_export(spark: SparkSession, archive: Archive) -> CopyJob:
    """Our export into a new lake."""
    database = Database.from_url(archive.url)
    return lambda target: export(spark, database, Lake(target)).messages


def by_jdbc(spark: SparkSession, archive: Archive) -> CopyJob:
    """The same columns of every batch, with the same compression. The files' footers contain the number of rows.

    The histories are absent, which these messages do not have, and the checksums of rows.
    """
    columns = [f"{LAKE_COLUMNS.get(name, name)} AS {name}" for name in without_history(MESSAGE_COLUMNS)]

    def copy(target: Path) -> int:
        rows = spark.read.format("jdbc").options(**_jdbc_options(archive)).load().selectExpr(*columns)
        rows.write.options(**JDBC_COMPRESSION).partitionBy(*ARCHIVE.partitions).parquet(str(target))
        return sum(pq.read_metadata(file).num_rows for file in target.rglob("*.parquet"))

    return copy


def _jdbc_options(archive: Archive) -> dict[str, str]:
    place = urlsplit(archive.url)
    return {
        "url": f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
        "user": str(place.username),
        "driver": "org.postgresql.Driver",
        "dbtable": SEALED_TABLE,
        "fetchsize": str(JDBC_FETCH_ROWS),
        "partitionColumn": "export_batch",
        "lowerBound": "1",
        "upperBound": str(archive.batches + 1),
        "numPartitions": str(JDBC_TASKS),
    }


def _spark_cpu(bench: Bench) -> TreeCpu:
    """The JVM and the workers are below this process, and so are the servers."""
    return TreeCpu(os.getpid(), without=(bench.postgres.pid, bench.redis.pid))


async def _fill(url: str, rows: int, queues: int, days: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(FILL, rows, queues, BEGIN, days * DAY, timeout=TIMEOUT_SECONDS)
        await connection.execute(SEAL, BATCH_ROWS, timeout=TIMEOUT_SECONDS)
        await connection.execute(ADD_BATCHES, timeout=TIMEOUT_SECONDS)
        await connection.execute("VACUUM ANALYZE archive, archive_seal", timeout=TIMEOUT_SECONDS)
        await connection.execute("CHECKPOINT", timeout=TIMEOUT_SECONDS)
    finally:
        await connection.close()


def print_progress(sentence: str) -> None:
    print(f"...   {sentence}", file=sys.stderr, flush=True)
