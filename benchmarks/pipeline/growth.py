"""How the cost of each job for a message grows with messages, with queues and with days."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.report import report
from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from benchmarks.bench import Bench
from benchmarks.pipeline.exporting import (
    QUEUES,
    Archive,
    measured_job,
    sealed_archive,
    spark_session,
)
from benchmarks.table import Row, at_most

GROWTH_FACTOR = 4
MIN_ROWS = 20_000
ROUNDS = 3
MOST = 1.3
"""Twice the work may cost 2.3 times as much: 1.15 times for each message, 1.3 times with four times the messages."""

MANY_QUEUES = 10_000
MANY_DAYS = 365


@dataclass(frozen=True, slots=True)
class Growth:
    """What grows, and the two archives that differ in it alone."""

    name: str
    more: str
    few: Archive
    many: Archive


def measure(bench: Bench) -> Iterator[Row]:
    """Every job runs on both archives in turn, after a round that is not counted."""
    rows = max(MIN_ROWS, bench.units(1_000_000))
    with (
        sealed_archive(bench, "few", rows) as few,
        sealed_archive(bench, "messages", rows * GROWTH_FACTOR) as messages,
        sealed_archive(bench, "queues", rows, queues=MANY_QUEUES) as queues,
        sealed_archive(bench, "days", rows, days=MANY_DAYS) as days,
        spark_session() as spark,
    ):
        for growth in (
            Growth("messages", f"{messages.rows:,} messages", few, messages),
            Growth("queues", f"{MANY_QUEUES:,} queues for {QUEUES}", few, queues),
            Growth("days", f"{MANY_DAYS} days for 2", few, days),
        ):
            yield from _rows_of(bench, spark, growth)


def _rows_of(bench: Bench, spark: SparkSession, growth: Growth) -> Iterator[Row]:
    rounds = [(_costs(bench, spark, growth.few), _costs(bench, spark, growth.many)) for _ in range(ROUNDS + 1)][1:]
    for job in rounds[0][0]:
        few, many = (statistics.median(costs[side][job] for costs in rounds) for side in (0, 1))
        times = statistics.median(more[job] / less[job] for less, more in rounds)
        yield Row(
            f"{job}, growth with {growth.name}",
            f"{growth.more}, 1 KiB each, PostgreSQL, median of {ROUNDS} rounds",
            f"{many:.1f} µs CPU a message; {times:.2f}×",
            f"itself with {growth.few.rows:,} messages of {QUEUES} queues and a day: {few:.1f} µs",
            [at_most(MOST, "×", times)],
        )


def _costs(bench: Bench, spark: SparkSession, archive: Archive) -> dict[str, float]:
    """Return what each job spends on a message, in microseconds: on a new lake, one after the other."""
    database, place = Database.from_url(archive.url), bench.folder / "copy"
    jobs: dict[str, Callable[[Lake], object]] = {
        "export": lambda lake: export(spark, database, lake),
        "compact": lambda lake: compact(spark, lake),
        "report": lambda lake: report(spark, lake, bench.folder / "report.html"),
        "audit": lambda lake: audit(spark, database, lake),
    }
    with measured_job(bench, place) as spent:
        return {
            name: spent(f"{name}, {archive.rows:,} messages", lambda job=job: job(Lake(place))) / archive.rows
            for name, job in jobs.items()
        }
