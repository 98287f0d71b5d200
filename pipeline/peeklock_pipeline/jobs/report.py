"""report: what happened to messages, as tables in the lake and as one self-contained page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.jobs.report_page import summarise
from peeklock_pipeline.jobs.report_parts import report_sources
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.output_file import write_output
from peeklock_pipeline.page import render
from peeklock_pipeline.period import Period
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import EmptyLake, UnknownQueue
from peeklock_pipeline.results import write_table
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms import report as ask

STEPS = 6
"""The steps of which a report shows its progress: the parts, each table, and the page."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What a report is about: one queue or all, a period or all of the time, computed from new batches or from all.

    `now` is the moment of the report.
    """

    queue: str | None = None
    period: Period | None = None
    from_scratch: bool = False
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The result of a report: its number of messages, and the path of the page; `totals` are the measures of all.

    Of `unarchived` further messages only the number is known: their queues keep no archive.
    """

    messages: int
    queues: int
    hours: int
    page: str
    tables: tuple[str, ...]
    totals: dict[str, Any]
    unarchived: int


@task_refusals()
def report(
    spark: SparkSession,
    lake: Lake,
    page: Path,
    request: ReportRequest | None = None,
    progress: Progress = no_progress,
) -> ReportResult:
    """Compute a report about a lake, or one queue of it, and write the page.

    A report about all queues adds the parts of new batches to the lake and replaces the tables, one by one. The tables
    cover all of the time, even if the page covers a period. A report about one queue writes no table. Refuses with
    `EmptyLake`, `UnknownQueue`, `BadLake`, and `BadOption` for a page that cannot be written.
    """
    asked = request or ReportRequest()
    begin(lake)
    progress(0, STEPS)
    with report_sources(spark, lake, asked.queue, asked.from_scratch) as sources:
        if asked.queue is not None and sources.parts.isEmpty():
            raise UnknownQueue(f"No message of a queue {asked.queue!r} is in {lake.root}.")
        tables = {} if asked.queue else _write_tables(lake, sources.parts, progress)
        summary = summarise(sources, asked.queue, asked.period, asked.now)
    write_output(page, render(summary))
    progress(STEPS, STEPS)
    hours = tables.get(ask.HOURS.name, 0)
    unarchived, totals = sum(summary.unarchived.values()), dict(summary.totals)
    return ReportResult(summary.messages, summary.queues_in_all, hours, str(page), tuple(tables), totals, unarchived)


def begin(lake: Lake) -> None:
    """Refuse with `EmptyLake` a lake without an export, and with `BadLake` a directory that is not a lake."""
    if lake.table(ARCHIVE) is None and lake.table(MESSAGES) is None:
        raise EmptyLake(f"Nothing was exported to {lake.root} yet: run `peeklock-pipeline export` first.")


TABLES = {ask.HOURS: ask.hours, ask.QUEUES: ask.queues, ask.REASONS: ask.reasons, ask.GROUPS: ask.slowest_groups}
"""Each table of a report, and the query that fills it."""


def _write_tables(lake: Lake, parts: DataFrame, progress: Progress) -> dict[str, int]:
    kept: dict[str, int] = {}
    for done, (spec, answer) in enumerate(TABLES.items()):
        progress(done + 1, STEPS)
        kept[spec.name] = write_table(lake, spec, answer(parts))
    progress(len(TABLES) + 1, STEPS)
    return kept


@contextmanager
def message_histories(spark: SparkSession, lake: Lake, queue: str | None) -> Iterator[DataFrame]:
    """Yield the histories of all messages, or of one queue. Spark caches them for the block."""
    begin(lake)
    messages = lake.read(spark, ask.LIVE_MESSAGES) if lake.table(MESSAGES) else None
    message_rows = ask.message_histories(lake.read(spark, ask.ENDED_MESSAGES), messages)
    if queue is not None:
        message_rows = message_rows.where(fn.col("queue") == queue)
        if message_rows.isEmpty():
            raise UnknownQueue(f"No message of a queue {queue!r} is in {lake.root}.")
    message_rows = message_rows.persist()
    try:
        yield message_rows
    finally:
        message_rows.unpersist()
