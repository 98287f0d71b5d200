"""report: what happened to messages, as tables in the lake and as one self-contained page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.lake import Lake
from peeklock_pipeline.page import render
from peeklock_pipeline.page.summary import Interval, Summary
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import EmptyLake, UnknownQueue
from peeklock_pipeline.results import rows, write_table
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES
from peeklock_pipeline.transforms import report as ask

WIDTHS = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
"""Possible widths of an interval of a plot, in seconds."""

MAX_POINTS = 72
MAX_QUEUES = 20
MAX_REASONS = 10
MAX_GROUPS = 10


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The result of a report: its number of messages, and the path of the page; `totals` are the measures of all."""

    messages: int
    queues: int
    hours: int
    page: str
    tables: tuple[str, ...]
    totals: dict[str, Any]


def report(
    spark: SparkSession, lake: Lake, page: Path, queue: str | None = None, progress: Progress = no_progress
) -> ReportResult:
    """Compute a report about a lake, or one queue of it, and write the page.

    A report about all queues replaces the tables in the lake, one by one. A report about one queue writes no table.
    Refuses with `EmptyLake`, `UnknownQueue` and `BadLake`.
    """
    with message_histories(spark, lake, queue) as message_rows:
        tables = {} if queue else _write_tables(lake, message_rows, progress)
        summary = summarise(message_rows, queue)
        progress(len(TABLES), len(TABLES) + 1)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(summary), encoding="utf-8")
    progress(len(TABLES) + 1, len(TABLES) + 1)
    hours = tables.get(ask.HOURS.name, 0)
    return ReportResult(summary.messages, summary.queues_in_all, hours, str(page), tuple(tables), summary.totals)


def begin(lake: Lake) -> None:
    """Refuse with `EmptyLake` a lake without an export, and with `BadLake` a directory that is not a lake."""
    if lake.table(ARCHIVE) is None and lake.table(MESSAGES) is None:
        raise EmptyLake(f"Nothing was exported to {lake.root} yet: run `peeklock-pipeline export` first.")


TABLES = {ask.HOURS: ask.hours, ask.QUEUES: ask.queues, ask.REASONS: ask.reasons, ask.GROUPS: ask.slowest_groups}
"""Each table of a report, and the query that fills it."""


def _write_tables(lake: Lake, message_rows: DataFrame, progress: Progress) -> dict[str, int]:
    kept: dict[str, int] = {}
    for done, (spec, answer) in enumerate(TABLES.items()):
        progress(done, len(TABLES) + 1)
        kept[spec.name] = write_table(lake, spec, answer(message_rows))
    return kept


@contextmanager
def message_histories(spark: SparkSession, lake: Lake, queue: str | None) -> Iterator[DataFrame]:
    """Yield the histories of all messages, or of one queue. Spark caches them for the block."""
    begin(lake)
    messages = lake.read(spark, MESSAGES) if lake.table(MESSAGES) else None
    message_rows = ask.message_histories(lake.read(spark), messages)
    if queue is not None:
        message_rows = message_rows.where(fn.col("queue") == queue)
        if message_rows.isEmpty():
            raise UnknownQueue(f"No message of a queue {queue!r} is in {lake.root}.")
    message_rows = message_rows.persist()
    try:
        yield message_rows
    finally:
        message_rows.unpersist()


def summarise(message_rows: DataFrame, queue: str | None = None) -> Summary:
    """Return the content of a page. Its size does not grow with the history.

    Time is cut into about `MAX_POINTS` intervals at most. All but the largest queues and reasons are summed up.
    """
    extent = ask.span(message_rows).first()
    assert extent is not None  # an aggregate without groups always has one row
    if extent["first"] is None:
        return Summary.empty(datetime.now(UTC), queue)
    width = width_for((extent["last"] - extent["first"]).total_seconds())
    (totals,) = rows(ask.measures(ask.sent_and_ended_times(message_rows)))
    names = [row["queue"] for row in _largest(message_rows, "queue", MAX_QUEUES)]
    return Summary(
        made_at=datetime.now(UTC),
        queue=queue,
        first=extent["first"].astimezone(UTC),
        last=extent["last"].astimezone(UTC),
        width=width,
        totals=totals,
        intervals=[Interval(row.pop("at").astimezone(UTC), row) for row in rows(ask.over_time(message_rows, width))],
        queues=rows(
            ask.queues(ask.queue_names(message_rows, names)).orderBy(fn.col("queue").isNull(), fn.desc("sent"), "queue")
        ),
        queues_in_all=extent["queues"],
        reasons=_reasons(message_rows, totals["dead_lettered"]),
        groups=rows(ask.slowest_groups(message_rows, MAX_GROUPS)),
    )


def width_for(seconds: float) -> int:
    """Return the narrowest of `WIDTHS` that cuts these seconds into at most `MAX_POINTS` intervals."""
    return next((width for width in WIDTHS if seconds / width <= MAX_POINTS), WIDTHS[-1])


def _largest(message_rows: DataFrame, column: str, most: int) -> list[dict[str, Any]]:
    """Return the most frequent values, and the number of messages of each."""
    counted = message_rows.groupBy(column).agg(fn.count("*").alias("messages"))
    return rows(counted.orderBy(fn.desc("messages"), column).limit(most))


def _reasons(message_rows: DataFrame, dead_lettered: int) -> list[dict[str, Any]]:
    """Return the most frequent reasons of dead letters, and the sum of all others under the reason None."""
    dead = message_rows.where("ended = 'dead_lettered'").withColumnRenamed("dead_letter_reason", "reason")
    found = _largest(dead, "reason", MAX_REASONS)
    others = dead_lettered - sum(row["messages"] for row in found)
    return [*found, {"reason": None, "messages": others}] if others else found
