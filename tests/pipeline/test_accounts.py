"""Messages that were accepted but are in no place are missing from the sum of their queue and day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import pyarrow as pa
import pytest
from peeklock_pipeline.jobs import findings
from peeklock_pipeline.jobs.ledger_lines import Ledger, LedgerLine, LedgerSums
from peeklock_pipeline.jobs.server_count import ServerCount
from peeklock_pipeline.table_specs import ACCOUNTS, OPENING, TableSpec
from peeklock_pipeline.transforms import audit as ask
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

MONDAY, TUESDAY = date(2026, 9, 21), date(2026, 9, 22)
ORDERS, LATER, BILLING = ("orders", MONDAY), ("orders", TUESDAY), ("billing", MONDAY)
QueueDay = tuple[str, date]
LEDGER = TableSpec("ledger", pa.schema([("queue", pa.string()), ("date", pa.date32())])).schema
for name in ("found", *ask.STANDINGS, "surplus", "covered", "uncounted"):
    LEDGER = LEDGER.append(pa.field(name, pa.int64()))


def frame(spark: SparkSession, rows: list[tuple[object, ...]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(rows, from_arrow_schema(schema))


def ledger(
    spark: SparkSession,
    accepted: Mapping[QueueDay, int],
    in_lake: Mapping[QueueDay, int],
    opening: Mapping[QueueDay, int] | None,
    removed: Mapping[QueueDay, int] | None = None,
) -> Ledger:
    """A ledger of messages that were all completed and exported, as far as they are in the lake."""
    accounts = frame(spark, [(*day, count + 3, 2, 1) for day, count in accepted.items()], ACCOUNTS.schema)
    completed = ask.STANDINGS.index("completed")
    parts = [tuple(count if index == completed else 0 for index in range(8)) for count in in_lake.values()]
    found = [(*day, count, *part, count, 0) for (day, count), part in zip(in_lake.items(), parts, strict=True)]
    gone = spark.createDataFrame(
        [(*day, count) for day, count in (removed or {}).items()], "queue string, accepted_on date, covered bigint"
    )
    lines = frame(spark, found, LEDGER)
    if opening is None:
        return Ledger.of(ask.ledger_lines(lines, None))
    begun = frame(spark, [(*day, count) for day, count in opening.items()], OPENING.schema)
    return Ledger.of(ask.ledger_lines(lines, ask.expected_in_lake(accounts, gone, begun)))


def missing(lines: Ledger) -> dict[QueueDay, int]:
    return {(line.queue, line.date): line.missing for line in lines.first() if line.missing}


def named(lines: Ledger, missed: int = 0) -> list[str]:
    return [str(finding) for finding in lines.unbalanced(missed)[0]]


def test_what_is_neither_held_nor_in_the_lake_nor_removed_is_missing(spark: SparkSession) -> None:
    accepted = {ORDERS: 6, LATER: 0, BILLING: 3}
    found = ledger(spark, accepted, {ORDERS: 4, BILLING: 1}, {BILLING: 2}, removed={ORDERS: 1})
    assert missing(found) == {ORDERS: 1}
    assert (found.count, found.sums.accepted, found.sums.completed, found.sums.missing) == (2, 6, 5, 1)


def test_what_was_never_accepted_is_missing_below_zero(spark: SparkSession) -> None:
    found = ledger(spark, {LATER: 0}, {LATER: 1, ("unknown", MONDAY): 2}, {})
    assert missing(found) == {LATER: -1, ("unknown", MONDAY): -2}
    assert found.is_exceeded


def test_a_lake_that_has_not_counted_yet_misses_nothing(spark: SparkSession) -> None:
    found = ledger(spark, {ORDERS: 6}, {ORDERS: 4}, None)
    assert [(line.accepted, line.missing) for line in found.first()] == [(4, 0)]


def test_a_queue_and_day_that_do_not_add_up_are_named(spark: SparkSession) -> None:
    found = ledger(spark, {ORDERS: 2, LATER: 1, BILLING: 0}, {LATER: 1, BILLING: 1}, {})
    assert named(found) == [
        "Queue billing, messages of 2026-09-21: 0 accepted, 1 more found.",
        "Queue orders, messages of 2026-09-21: 2 accepted, 2 missing.",
    ]


def test_what_the_archive_removed_before_an_export_is_named_by_its_batch_alone(spark: SparkSession) -> None:
    found = ledger(spark, {ORDERS: 2, LATER: 3}, {}, {})
    assert found.unbalanced(missed=5) == ([], 0)
    assert [finding.what for finding in found.unbalanced(missed=4)[0]] == [
        f"{count} accepted, {count} missing, of which up to 4 were removed from the archive before an export"
        for count in (2, 3)
    ]


SUMS = {
    "accepted": 2937, "live": 2, "dead_lettered": 0, "completed": 2934, "received": 0, "expired": 0, "purged": 0,
    "cancelled": 0, "surplus": 0, "missing": 1, "uncounted": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("server", "uncounted", "terms"),
    [
        (ServerCount(2937, 0, 0, 0, 0), 0, []),
        (ServerCount(2963, 26, 0, 0, 0), 0, ["+ 26 of queues without an archive"]),
        (ServerCount(3937, 0, 1000, 1000, 0), 0, ["+ 1000 removed by the lake's retention"]),
        (ServerCount(2940, 0, 0, 0, 3), 0, ["+ 3 gone before the lake began to count"]),
        (ServerCount(0, 0, 0, 0, -2937), 0, ["- 2937 held before the lake began to count, but never counted"]),
        (ServerCount(2930, 0, 0, 5, 0), 7, ["- 7 that no server counted"]),
        (ServerCount(2965, 26, 0, 0, 0), 0, ["+ 26 of queues without an archive", "+ 2 accepted or ended during the audit"]),
    ],
)  # fmt: skip
def test_what_lies_between_the_servers_count_and_the_messages_found_has_its_reason(
    server: ServerCount, uncounted: int, terms: list[str]
) -> None:
    assert server.terms(LedgerSums(**SUMS | {"uncounted": uncounted})) == terms


def test_of_many_queues_a_bounded_number_of_lines_and_findings_reaches_the_driver(spark: SparkSession) -> None:
    many = {(f"queue-{number:05}", MONDAY): 1 for number in range(findings.MAX_NAMED + 5)}
    found = ledger(spark, many, {ORDERS: 1}, {})
    first = found.first(3)
    assert [line.queue for line in first] == ["orders", "queue-00000", "queue-00001"]
    assert first[0] == LedgerLine(0, *(int(name == "completed") for name in ask.STANDINGS), 0, -1, 0, *ORDERS)
    listed, others = found.unbalanced(0)
    assert (found.count, len(listed), others) == (len(many) + 1, findings.MAX_NAMED, 6)
    assert found.sums.missing == len(many) - 1
