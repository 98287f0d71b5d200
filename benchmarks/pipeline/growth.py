"""How the cost of each job for a message grows with messages, with queues and with days."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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
ROUNDS = 2
MOST = 1.3
"""Twice the work may cost 2.3 times as much: 1.15 times for each message, 1.3 times with four times the messages."""

MANY_QUEUES = 10_000
MANY_DAYS = 365


@dataclass(frozen=True, slots=True)
class Content:
    """How many messages, queues and days an archive has."""

    rows: int
    queues: int = QUEUES
    days: int = 1


def measure(bench: Bench) -> Iterator[Row]:
    """Every job runs on two archives in turn, which differ in one number, after a round on the smaller one that is not
    counted."""
    rows = max(MIN_ROWS, bench.units(1_000_000))
    fewer = Content(max(MIN_ROWS, rows // GROWTH_FACTOR))
    with spark_session() as spark:
        yield from _growth(bench, spark, "messages", Content(rows), Content(rows * GROWTH_FACTOR))
        yield from _growth(bench, spark, "queues", fewer, Content(fewer.rows, queues=MANY_QUEUES))
        yield from _growth(bench, spark, "days", fewer, Content(fewer.rows, days=MANY_DAYS))


def _growth(bench: Bench, spark: SparkSession, name: str, few: Content, many: Content) -> Iterator[Row]:
    with _archive(bench, "few", few) as less, _archive(bench, "many", many) as more:
        _costs(bench, spark, less)
        rounds = [(_costs(bench, spark, less), _costs(bench, spark, more)) for _ in range(ROUNDS)]
    for job in rounds[0][0]:
        spent = [statistics.mean(costs[side][job] for costs in rounds) for side in (0, 1)]
        times = spent[1] / spent[0]
        yield Row(
            f"{job}, growth with {name}",
            f"{_words(many)}, 1 KiB each, PostgreSQL, mean of {ROUNDS} rounds",
            f"{spent[1]:.1f} µs CPU a message; {times:.2f}×",
            f"{_words(few)}: {spent[0]:.1f} µs",
            [at_most(MOST, "×", times)],
        )


def _archive(bench: Bench, name: str, content: Content) -> AbstractContextManager[Archive]:
    return sealed_archive(bench, name, content.rows, queues=content.queues, days=content.days)


def _words(content: Content) -> str:
    return (
        f"{content.rows:,} messages, {content.queues:,} queues, {content.days} {'day' if content.days == 1 else 'days'}"
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
