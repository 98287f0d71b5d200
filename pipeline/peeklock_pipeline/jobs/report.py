"""report: what happened to messages, as tables in the lake and as one page that needs nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.columns import ARCHIVE, MESSAGES
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.page import render
from peeklock_pipeline.page.summary import Part, Summary
from peeklock_pipeline.progress import Progress, unheard
from peeklock_pipeline.refusals import EmptyLake, UnknownQueue
from peeklock_pipeline.results import keep, rows
from peeklock_pipeline.transforms import report as ask

WIDTHS = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
"""Seconds of which a point of a plot may tell."""

MOST_POINTS = 72
MOST_QUEUES = 20
MOST_REASONS = 10
MOST_SHOWN_GROUPS = 10


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report has found: messages it knows of, and where the page is; `totals` are the measures of all."""

    messages: int
    queues: int
    hours: int
    page: str
    tables: tuple[str, ...]
    totals: dict[str, Any]


def report(
    spark: SparkSession, lake: Lake, page: Path, queue: str | None = None, progress: Progress = unheard
) -> Reported:
    """Answer every question of a report about a lake, or one queue of it, and write the page.

    The tables in the lake are replaced one by one, and only by a report about all queues: they tell of everything.
    Refuses with `EmptyLake`, `UnknownQueue` and `BadLake`.
    """
    with histories(spark, lake, queue) as known:
        tables = {} if queue else _keep(lake, known, progress)
        summary = summarise(known, queue)
        progress(len(TABLES), len(TABLES) + 1)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(summary), encoding="utf-8")
    progress(len(TABLES) + 1, len(TABLES) + 1)
    hours = tables.get(ask.HOURS.name, 0)
    return Reported(summary.messages, summary.queues_in_all, hours, str(page), tuple(tables), summary.totals)


def begin(lake: Lake) -> None:
    """Refuse with `EmptyLake` a lake to which nothing was exported, and with `BadLake` what is none of ours."""
    if lake.table(ARCHIVE) is None and lake.table(MESSAGES) is None:
        raise EmptyLake(f"There is nothing in {lake.root} yet: run `peeklock-pipeline export` first.")


TABLES = {ask.HOURS: ask.hours, ask.QUEUES: ask.queues, ask.REASONS: ask.reasons, ask.GROUPS: ask.slowest_groups}
"""Each table of a report, and what answers it."""


def _keep(lake: Lake, known: DataFrame, progress: Progress) -> dict[str, int]:
    kept: dict[str, int] = {}
    for done, (shape, answer) in enumerate(TABLES.items()):
        progress(done, len(TABLES) + 1)
        kept[shape.name] = keep(lake, shape, answer(known))
    return kept


@contextmanager
def histories(spark: SparkSession, lake: Lake, queue: str | None) -> Iterator[DataFrame]:
    """The lives of all messages, or those of a queue, kept as near as Spark can as long as they are asked."""
    begin(lake)
    messages = lake.read(spark, MESSAGES) if lake.table(MESSAGES) else None
    known = ask.lives(lake.read(spark), messages)
    if queue is not None:
        known = known.where(fn.col("queue") == queue)
        if known.isEmpty():
            raise UnknownQueue(f"No message of a queue {queue!r} is in {lake.root}.")
    known = known.persist()
    try:
        yield known
    finally:
        known.unpersist()


def summarise(known: DataFrame, queue: str | None = None) -> Summary:
    """What a page shows, of a size that does not grow with history.

    Time is cut into at most about `MOST_POINTS` parts, and all but the largest queues and reasons are summed up.
    """
    extent = ask.span(known).first()
    assert extent is not None  # an aggregate of everything always has its one row
    if extent["first"] is None:
        return Summary.empty(datetime.now(UTC), queue)
    width = width_for((extent["last"] - extent["first"]).total_seconds())
    (totals,) = rows(ask.measures(ask.moments(known)))
    names = [row["queue"] for row in _largest(known, "queue", MOST_QUEUES)]
    return Summary(
        made_at=datetime.now(UTC),
        queue=queue,
        first=extent["first"].astimezone(UTC),
        last=extent["last"].astimezone(UTC),
        width=width,
        totals=totals,
        parts=[Part(row.pop("at").astimezone(UTC), row) for row in rows(ask.over_time(known, width))],
        queues=rows(ask.queues(ask.named(known, names)).orderBy(fn.col("queue").isNull(), fn.desc("sent"), "queue")),
        queues_in_all=extent["queues"],
        reasons=_reasons(known, totals["dead_lettered"]),
        groups=rows(ask.slowest_groups(known, MOST_SHOWN_GROUPS)),
    )


def width_for(seconds: float) -> int:
    """The narrowest of `WIDTHS` that cuts so many seconds into no more than `MOST_POINTS` parts."""
    return next((width for width in WIDTHS if seconds / width <= MOST_POINTS), WIDTHS[-1])


def _largest(known: DataFrame, column: str, most: int) -> list[dict[str, Any]]:
    """The values that most messages have, and how many have them."""
    counted = known.groupBy(column).agg(fn.count("*").alias("messages"))
    return rows(counted.orderBy(fn.desc("messages"), column).limit(most))


def _reasons(known: DataFrame, dead_lettered: int) -> list[dict[str, Any]]:
    """The reasons that most of so many dead letters have, and what is left for all others, whose reason is None."""
    dead = known.where("ended = 'dead_lettered'").withColumnRenamed("dead_letter_reason", "reason")
    found = _largest(dead, "reason", MOST_REASONS)
    others = dead_lettered - sum(row["messages"] for row in found)
    return [*found, {"reason": None, "messages": others}] if others else found
