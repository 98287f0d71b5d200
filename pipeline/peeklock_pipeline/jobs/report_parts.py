"""The parts of a report in the lake: a run adds those of new batches, once, and merges them when there are many files.

One commit adds the files and records the last batch in them. A crash before it leaves files that belong to no table.
After it, the next run begins behind that batch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, timedelta

from deltalake import DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.broker_tables import UNARCHIVED
from peeklock_pipeline.files import Value
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import damaged_files, files_of
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.results import write_files
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, REMOVED
from peeklock_pipeline.tables import Change, export_position_of
from peeklock_pipeline.transforms import report_parts as ask
from peeklock_pipeline.transforms.report import ENDED_MESSAGES, LIVE_MESSAGES, message_histories

LAST_BATCH_KEY_PREFIX = "peeklock-report-1-"
"""The prefix of the application whose transaction version is the last batch in the parts. The id of the archive's table
follows: parts of another archive, or computed by other rules than 1, are computed again."""

REMOVALS_KEY = "peeklock-report-removals"
"""The application whose transaction version is the number of removals by retention that no part contains any more."""

MAX_FILES = 48
"""The number of files from which on a run merges the parts. A run adds a few."""

CLOCK_SKEW = timedelta(days=1)
"""A message of a snapshot that was archived since ended after the snapshot, or so long before it by another clock."""


LAST_BATCH = 2**63 - 1
"""No batch has a higher number."""


@dataclass(frozen=True, slots=True)
class ReportSources:
    """What a report reads: the parts of all messages, of one queue or of all, and the histories since a day.

    `unarchived` counts the messages that left a queue without an archive by the last snapshot (`UNARCHIVED`).
    `last_removed_day` is the last day of which the lake's retention has removed messages.
    """

    parts: DataFrame
    histories_since: Callable[[date], DataFrame]
    unarchived: DataFrame
    last_removed_day: date | None


@dataclass(frozen=True, slots=True)
class Removals:
    """What the lake's retention has removed: rows of `REMOVED`, of how many removals, and the last day; None for none."""

    rows: DataFrame | None = None
    count: int = 0
    last_day: date | None = None


@dataclass(frozen=True, slots=True)
class OpenedTables:
    """The tables of a lake at fixed versions, what the parts contain, and what the archive does."""

    archive: DeltaTable | None
    parts: DeltaTable | None
    merged_batch: int
    last_batch: int
    merged_removals: int

    @property
    def version(self) -> int:
        """The version of the parts; -1 before their first commit."""
        return -1 if self.parts is None else self.parts.version()

    @property
    def new_batches(self) -> Mapping[str, tuple[Value, Value]]:
        """The bounds of the batches that the parts do not contain."""
        return {"export_batch": (self.merged_batch + 1, LAST_BATCH)}

    @property
    def file_count(self) -> int:
        """The number of files of parts that can be continued."""
        return len(files_of(self.parts)) if self.parts and self.merged_batch else 0

    @property
    def key(self) -> str:
        """The application that records the last batch in the parts."""
        return f"{LAST_BATCH_KEY_PREFIX}{self.archive.metadata().id if self.archive else ''}"


def open_tables(lake: Lake, from_scratch: bool = False) -> OpenedTables:
    """Open the parts and the archive. Parts that cannot be continued count as absent: their batch is 0."""
    parts = lake.table(ask.PARTS)  # first, so that the archive is never the older one
    archive = lake.table(ARCHIVE)
    opened = OpenedTables(archive, parts, 0, export_position_of(archive).number, 0)
    if parts is None or from_scratch or damaged_files(files_of(parts), lake.directory(ask.PARTS)):
        return opened
    batch = parts.transaction_version(opened.key) or 0
    if batch > opened.last_batch:
        return opened
    removals = parts.transaction_version(REMOVALS_KEY) or 0
    return OpenedTables(archive, parts, batch, opened.last_batch, removals)


@contextmanager
def report_sources(
    spark: SparkSession, lake: Lake, queue: str | None, from_scratch: bool = False
) -> Iterator[ReportSources]:
    """Yield what a report reads. Without a queue, the parts of new batches are added to the lake first.

    Spark caches the parts that are not in the lake for the block. Refuses with `BadLake` if another report has committed
    meanwhile.
    """
    opened = open_tables(lake, from_scratch)
    removed = _removals(spark, lake, opened)
    live = _live(spark, lake, opened)

    def of_queue(found: DataFrame) -> DataFrame:
        return found if queue is None else found.where(fn.col("queue") == queue)

    def histories_since(day: date) -> DataFrame:
        return of_queue(_together(_archived(spark, lake, opened, {"date": (day, date.max)}), live))

    with ExitStack() as cached:
        if queue is None:
            opened, fresh = _update(spark, lake, opened, removed), live
        else:
            fresh = _together(_kept(cached, lake, opened, of_queue(_new(spark, lake, opened))), live)
        parts = of_queue(_stored(spark, lake, opened, removed))
        if fresh is not None:
            parts = parts.unionByName(_cached(cached, ask.parts(of_queue(fresh))))
        yield ReportSources(parts, histories_since, of_queue(lake.read(spark, UNARCHIVED)), removed.last_day)


def _cached(cached: ExitStack, found: DataFrame) -> DataFrame:
    """Have Spark cache these rows until the stack ends."""
    cached.callback(found.unpersist)
    return found.persist()


def _kept(cached: ExitStack, lake: Lake, opened: OpenedTables, new: DataFrame) -> DataFrame:
    """Cache new messages that Arrow reads, until the stack ends: each kind of parts would read all their columns.

    Spark itself reads the few columns that a kind needs, which costs less than to cache all.
    """
    if opened.archive is None:
        return new
    files = files_of(opened.archive, opened.new_batches)
    return _cached(cached, new) if lake.is_read_by_arrow(files, ENDED_MESSAGES) else new


def _together(some: DataFrame, others: DataFrame | None) -> DataFrame:
    """Return the rows of both; None stands for no rows, because each query would plan and run an empty DataFrame too."""
    return some if others is None else some.unionByName(others)


def _archived(
    spark: SparkSession, lake: Lake, opened: OpenedTables, within: Mapping[str, tuple[Value, Value]]
) -> DataFrame:
    """Return the histories of messages in the files of the archive that have rows within these bounds."""
    return message_histories(lake.read_version(spark, opened.archive, ENDED_MESSAGES, within))


def _new(spark: SparkSession, lake: Lake, opened: OpenedTables) -> DataFrame:
    """Return the histories of the messages of new batches."""
    first, _ = opened.new_batches["export_batch"]
    return _archived(spark, lake, opened, opened.new_batches).where(fn.col("export_batch") >= first)


def _live(spark: SparkSession, lake: Lake, opened: OpenedTables) -> DataFrame | None:
    """Return the histories of the messages of the snapshot that were not archived since; None for an empty snapshot."""
    if (messages := lake.table(MESSAGES)) is None:
        return None
    live = lake.read_version(spark, messages, LIVE_MESSAGES)
    (taken,) = live.agg(fn.min("taken_at")).collect()
    if taken[0] is None:
        return None
    since = (taken[0].astimezone(UTC) - CLOCK_SKEW).date()
    archive = lake.read_version(spark, opened.archive, ENDED_MESSAGES, {"date": (since, date.max)})
    return message_histories(archive, live, since).where("is_live")


def _update(spark: SparkSession, lake: Lake, opened: OpenedTables, removed: Removals) -> OpenedTables:
    """Commit the parts of the new batches, and return the tables with them."""
    rewrites = opened.file_count not in range(1, MAX_FILES) or removed.count != opened.merged_removals
    if opened.merged_batch == opened.last_batch and not rewrites:
        return opened
    with ExitStack() as cached:
        new = ask.parts(_kept(cached, lake, opened, _new(spark, lake, opened)))
        if opened.file_count and rewrites:
            new = ask.joined(_stored(spark, lake, opened, removed).unionByName(new))
        change = Change(write_files(lake, ask.PARTS, new), mode="overwrite" if rewrites else "append")
    done = (Transaction(opened.key, opened.last_batch), Transaction(REMOVALS_KEY, removed.count))
    if not lake.commit_at_version(ask.PARTS, change, opened.version, *done):
        raise BadLake("Another report of this lake has committed meanwhile; run this one again.")
    parts = lake.table(ask.PARTS)
    assert parts is not None  # it was just committed
    parts.load_as_version(opened.version + 1)
    return OpenedTables(opened.archive, parts, opened.last_batch, opened.last_batch, removed.count)


def _stored(spark: SparkSession, lake: Lake, opened: OpenedTables, removed: Removals) -> DataFrame:
    """Return the parts in the lake that can be continued, without those of messages that retention has removed."""
    parts = lake.read_version(spark, opened.parts if opened.merged_batch else None, ask.PARTS)
    return parts if removed.rows is None else ask.kept(parts, removed.rows)


def _removals(spark: SparkSession, lake: Lake, opened: OpenedTables) -> Removals:
    """Return what retention has removed from the archive at its opened version."""
    if opened.archive is None or lake.table(REMOVED) is None:
        return Removals()
    removed = lake.removed(spark, opened.archive)
    (found,) = removed.agg(fn.count_distinct("removal"), fn.max("date")).collect()
    return Removals(removed, *found) if found[0] else Removals()
