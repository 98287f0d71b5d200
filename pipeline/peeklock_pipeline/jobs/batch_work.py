"""Compares the batches of an audit with lake and archive, portion by portion."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.batch_comparison import BatchComparison, BatchContents, batch_contents, batch_findings
from peeklock_pipeline.jobs.batch_portions import LOWEST, BatchPortion, KnownBatches
from peeklock_pipeline.jobs.findings import MAX_NAMED, LimitedFindings, merge
from peeklock_pipeline.located_rows import located_events
from peeklock_pipeline.ranges import even_ranges, rows_of
from peeklock_pipeline.table_specs import ARCHIVE, EVENT_DIGESTS, MESSAGE_COLUMNS
from peeklock_pipeline.transforms import audit as ask

MESSAGES = ARCHIVE.with_columns(*MESSAGE_COLUMNS)
"""The columns in which lake and archive are compared."""

EVENT_BATCHES = 100
"""Batches of which one task reads the events from the database. More, if this made too many tasks."""

KINDS = 4
"""Wrong batches, messages in one place only, messages that differ, and edited ones."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The findings about batches, how many were compared, and the messages that were removed before an export."""

    found: LimitedFindings
    batches: int
    unexported: int


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The messages that an audit has read (`LOCATED_ROWS`), and what the lake records about its batches."""

    spark: SparkSession
    database: Database
    archive: ArchiveRows
    placed: DataFrame
    removed: DataFrame
    missed: Mapping[int, int]

    def compared(self, known: KnownBatches, first: int, exported: int, most: int) -> Compared:
        """Compare all batches after the known ones' first number, `most` at a time."""
        found: LimitedFindings = ([], 0)
        batches = unexported = 0
        for portion in known.portions(self.database, most):
            comparison = self._comparison(portion, known.oldest, first, exported)
            more = batch_findings(comparison, self._rows(portion), self._pairs, self.archive.edited)
            found = merge([found, more], KINDS * MAX_NAMED)
            batches, unexported = batches + comparison.compared(), unexported + comparison.unexported()
        return Compared(found, batches, unexported)

    def _comparison(self, portion: BatchPortion, oldest: int, first: int, exported: int) -> BatchComparison:
        contents = self._contents(portion)
        removed = ask.removed_by_batch(self.removed.where(_within(portion))).collect()
        begin = LOWEST if portion.is_first else portion.low  # what was missed earlier is always named
        return BatchComparison(
            known=portion.known,
            later=portion.listed_again(self.database),  # after its rows and events were read, to find removed ones
            oldest=oldest,
            first_batch=first,
            exported=exported,
            contents=contents,
            removed={row.number: row.messages for row in removed},
            missed={n: count for n, count in self.missed.items() if begin < n <= portion.high},
        )

    def _contents(self, portion: BatchPortion) -> dict[tuple[str, int], BatchContents]:
        """Return the contents of each batch in lake and archive."""
        events = self.archive.events(portion.low, portion.high).unionByName(self._events(portion))
        rows = ask.batches(self._rows(portion), events).collect()
        return {(row.place, row.number): batch_contents(row) for row in rows}

    def _rows(self, portion: BatchPortion) -> DataFrame:
        return self.placed.where(_within(portion))

    def _events(self, portion: BatchPortion) -> DataFrame:
        """Return the digests of every event of these batches in the database."""
        numbers = [batch.number for batch in portion.known]
        ranges = even_ranges(numbers[0], numbers[-1], EVENT_BATCHES) if numbers else []
        return rows_of(self.spark, ranges, partial(_located_events, self.database), EVENT_DIGESTS)

    def _pairs(self, numbers: Sequence[int]) -> DataFrame:
        """Read these batches again, and return the messages that differ between lake and archive."""
        ranges = [(number, number) for number in numbers]
        lake = self.archive.between(min(numbers) - 1, max(numbers), MESSAGES)
        chosen = lake.where(F.col("export_batch").isin(*numbers))
        return ask.differing_rows(chosen, rows_of(self.spark, ranges, self.database.chunks, MESSAGES))


def _located_events(database: Database, first: int, last: int) -> Iterator[pa.Table]:
    return (located_events(events, "archive") for events in database.events(first, last))


def _within(portion: BatchPortion) -> Column:
    return F.col("export_batch").between(portion.low + 1, portion.high)
