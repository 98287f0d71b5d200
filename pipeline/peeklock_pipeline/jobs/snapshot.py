"""snapshot: copies what is in the broker now into tables of the lake: messages in queues, settings, transactions, states."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import Transaction
from pyspark.sql import SparkSession

from peeklock_pipeline.broker_tables import BROKER_TABLES
from peeklock_pipeline.conditions import microseconds
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.jobs.export import require_same_database
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.ranges import MAX_RANGES, Range, Read, write_ranges
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.results import write_files
from peeklock_pipeline.table_specs import MESSAGES, TIMESTAMP, TableSpec
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms.groups import GROUPS, groups

RANGE_ROWS = 50_000
"""Rows that one task reads. More, if this made too many tasks."""

SNAPSHOT_KEY = "peeklock-snapshot"
"""The application whose transaction version is the microsecond in which the snapshot of a table began."""

MESSAGE_NUMBERS = "SELECT sequence_number AS number FROM message"


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The number of messages, the start of the snapshot, and the number of rows of each table that it wrote."""

    messages: int
    taken_at: datetime
    tables: dict[str, int]


@task_refusals()
def snapshot(
    spark: SparkSession,
    database: Database,
    lake: Lake,
    now: datetime | None = None,
    *,
    replaces_later: bool = False,
) -> SnapshotResult:
    """Replace the tables of what is in the broker, one after the other.

    Each row is as it was at some moment after `taken_at`, not all at the same. Refuses with `DatabaseUnavailable` and
    `BadLake`, even if the snapshot of a table began later, unless it replaces those too; the tables that are not written
    by then are unchanged.
    """
    require_same_database(database, lake.export_position())
    taken_at = now or datetime.now(UTC)
    replace = _replace_any if replaces_later else _replace

    def write(spec: TableSpec, counted: str, read: Read) -> int:
        ranges = even_ranges_of(database, counted)
        stamped = _stamped(read, spec, taken_at)
        files = write_ranges(spark, ranges, stamped, lake.directory(spec), lake.layout(spec)) if ranges else []
        return replace(lake, spec, files, taken_at)

    tables = {MESSAGES.name: write(MESSAGES, MESSAGE_NUMBERS, database.messages)}
    for table in BROKER_TABLES:
        tables[table.spec.name] = write(table.spec, table.counted, lambda *within, of=table: of.rows(database, *within))
    counted_groups = write_files(lake, GROUPS, groups(lake.read(spark, MESSAGES)))
    tables[GROUPS.name] = replace(lake, GROUPS, counted_groups, taken_at)
    return SnapshotResult(tables[MESSAGES.name], taken_at, tables)


def _replace(lake: Lake, spec: TableSpec, files: Sequence[DataFile], taken_at: datetime) -> int:
    """Replace a table, and return its number of rows."""
    if not lake.replace_by_later(spec, files, SNAPSHOT_KEY, microseconds(taken_at)):
        raise BadLake(
            f"{lake.directory(spec)} is of a snapshot that began later than this one, {taken_at:%F %T} UTC, and stays. "
            "If the clock of its machine was ahead, run this with --replace-later."
        )
    return sum(file.rows for file in files)


def _replace_any(lake: Lake, spec: TableSpec, files: Sequence[DataFile], taken_at: datetime) -> int:
    """Replace a table of any snapshot, and return its number of rows."""
    lake.replace(spec, files, Transaction(SNAPSHOT_KEY, microseconds(taken_at)))
    return sum(file.rows for file in files)


def even_ranges_of(database: Database, counted: str, rows: int = RANGE_ROWS) -> list[Range]:
    """Return ranges of numbers with about as many rows each, of which none is empty when it is planned.

    `counted` is a query for the `number` of each row. The database reads its index once, and gives one number for each range.
    """
    starts, last = database.number_of_every(rows, counted)
    return ranges_from(starts, last)


def ranges_from(starts: Sequence[int], last: int, most: int = MAX_RANGES) -> list[Range]:
    """Return the ranges that begin at these ascending numbers and reach to the last one; at most `most` of them."""
    begins = list(dict.fromkeys(starts))
    begins = begins[:: -(-len(begins) // most)] if begins else []
    return list(zip(begins, [*(begin - 1 for begin in begins[1:]), last], strict=True)) if begins else []


def _stamped(read: Read, spec: TableSpec, taken_at: datetime) -> Callable[[int, int], Iterable[pa.Table]]:
    def read_stamped(first: int, last: int) -> Iterator[pa.Table]:
        for piece in read(first, last):
            taken = pa.repeat(pa.scalar(taken_at, TIMESTAMP), piece.num_rows)
            yield piece.append_column(spec.schema.field("taken_at"), taken)

    return read_stamped
