"""Filters of a query reach the database: fewer batches are read, fewer rows travel, and no row is lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from peeklock_pipeline import source
from peeklock_pipeline.conditions import Condition
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.filters import conditions_of
from peeklock_pipeline.source.options import ReadOptions
from peeklock_pipeline.source.reading import NOTHING, FilteringReader
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tests.pipeline.archive import DAY, NOON, Archive, archived

FIRST_DAY = datetime.fromtimestamp(NOON / 1e6, UTC).date()


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def of_two_queues(archive: Archive) -> Archive:
    """Three batches of four messages, each batch a day after the one before: 1 to 4, 5 to 8 and 9 to 12.

    Odd numbers are in orders, even ones in billing. Every fourth expired, and was sent an hour before the others.
    """
    for batch in range(1, 4):
        at = NOON + (batch - 1) * DAY
        rows = [
            archived(
                number,
                queue=("billing", "orders")[number % 2],
                outcome="completed" if number % 4 else "expired",
                settled_at=at,
                enqueued_at=at - (1 if number % 4 else 3600) * 1_000_000,
            )
            for number in range(batch * 4 - 3, batch * 4 + 1)
        ]
        archive.seal_all({batch: rows}, sealed_at=at)
    return archive


def read_with(archive: Archive, *filters: Filter) -> tuple[list[int], list[int]]:
    """The batches that are read with these filters, and the numbers of the messages that travel."""
    options = ReadOptions.of({"databaseUrl": archive.url})
    reader = FilteringReader(options, options.schema())
    assert list(reader.pushFilters(list(filters))) == list(filters)
    tasks: list[Any] = [task for task in reader.partitions() if task is not NOTHING]
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    batches = [number for task in tasks for number in range(task.first, task.last + 1)]
    return batches, sorted(row["sequence_number"] for row in rows)


@pytest.mark.parametrize(
    ("filters", "batches", "numbers"),
    [
        ([EqualTo(("queue",), "orders")], [1, 2, 3], [1, 3, 5, 7, 9, 11]),
        ([In(("queue",), ("billing", "nowhere", None))], [1, 2, 3], [2, 4, 6, 8, 10, 12]),
        ([EqualTo(("outcome",), "expired"), LessThan(("export_batch",), 3)], [1, 2], [4, 8]),
        ([In(("export_batch",), (1, 3)), EqualNullSafe(("queue",), "orders")], [1, 3], [1, 3, 9, 11]),
        ([GreaterThan(("settled_at",), moment(NOON + DAY))], [2, 3], [9, 10, 11, 12]),
        ([LessThanOrEqual(("settled_at",), moment(NOON + DAY))], [1, 2, 3], list(range(1, 9))),
        ([GreaterThanOrEqual(("enqueued_at",), moment(NOON + 2 * DAY - 1_000_000))], [3], [9, 10, 11]),
        ([EqualTo(("date",), FIRST_DAY + timedelta(days=1))], [2, 3], [5, 6, 7, 8]),
        ([GreaterThan(("date",), FIRST_DAY), LessThan(("date",), FIRST_DAY + timedelta(days=2))], [2, 3], [5, 6, 7, 8]),
        (
            [LessThanOrEqual(("date",), date.max), GreaterThan(("date",), FIRST_DAY)],
            [2, 3],
            [5, 6, 7, 8, 9, 10, 11, 12],
        ),
        ([EqualTo(("message_id",), "id-7"), IsNotNull(("message_id",))], [1, 2, 3], [7]),
        ([GreaterThan(("sequence_number",), 10), EqualTo(("delivery_count",), 1)], [1, 2, 3], [11, 12]),
        ([GreaterThan(("export_batch",), 3)], [], []),
    ],
)
def test_what_no_row_can_pass_is_not_read(
    archive: Archive, filters: Sequence[Filter], batches: list[int], numbers: list[int]
) -> None:
    assert read_with(of_two_queues(archive), *filters) == (batches, numbers)


def test_what_older_servers_sealed_is_filtered_alike(archive: Archive) -> None:
    of_two_queues(archive).write_as_older_servers()
    filters = [EqualTo(("queue",), "orders"), GreaterThan(("export_batch",), 1)]
    assert read_with(archive, *filters) == ([2, 3], [5, 7, 9, 11])


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("message_id",), "it's"),
        EqualTo(("message_id",), "a\\"),
        EqualTo(("message_id",), "\U0001f680"),
        In(("queue",), ("orders", "'; DROP TABLE archive; --")),
        In(("sequence_number",), tuple(range(1001))),
        In(("queue",), ()),
        EqualTo(("sequence_number",), 1.5),
        EqualTo(("receiver_id",), "r"),
        EqualTo(("settled_at",), moment(NOON).replace(tzinfo=None)),
        EqualTo(("history", "event"), "sent"),
        GreaterThan(("queue",), "orders"),
        Not(EqualTo(("queue",), "orders")),
        StringStartsWith(("queue",), "ord"),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter) -> None:
    assert conditions_of([one]) == ()


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("export_batch", "=", (1, 5)), [True, False]),
        (Condition("export_batch", "<", (4,)), [True, False]),
        (Condition("export_batch", "<=", (4,)), [True, True]),
        (Condition("export_batch", ">", (3,)), [False, True]),
        (Condition("export_batch", ">=", (3,)), [True, True]),
    ],
)
def test_a_condition_holds_for_a_range_that_has_a_value_of_it(condition: Condition, holds: list[bool]) -> None:
    assert [condition.may_hold(1, 3), condition.may_hold(4, 4)] == holds


def test_a_message_that_a_clock_let_end_after_its_batch_was_sealed_is_read(small_archive: Archive) -> None:
    late = archived(1, settled_at=NOON + 2_000_000)
    small_archive.seal_all({1: [late]}, sealed_at=NOON)
    assert read_with(small_archive, GreaterThan(("settled_at",), moment(NOON + 1_000_000))) == ([1], [1])


def test_a_batch_that_vanishes_while_it_is_filtered_is_noticed(small_archive: Archive) -> None:
    options = ReadOptions.of({"databaseUrl": of_two_queues(small_archive).url})
    reader = FilteringReader(options, options.schema())
    reader.pushFilters([EqualTo(("queue",), "orders")])
    (task,) = reader.partitions()
    small_archive.remove(2, "expired")

    with pytest.raises(BatchesLost, match="held 12 messages and now hold 8: some were removed"):
        list(reader.read(task))


def test_a_query_gives_the_same_rows_with_filters_in_the_database_and_in_spark(
    spark: SparkSession, small_archive: Archive
) -> None:
    of_two_queues(small_archive)
    where = f"queue = 'orders' AND outcome = 'completed' AND date > DATE'{FIRST_DAY}' AND export_batch < 3"

    def read() -> tuple[list[int], int]:
        source.register(spark)
        found = spark.read.format("peeklock").option("databaseUrl", small_archive.url).load().where(where)
        return sorted(row.sequence_number for row in found.collect()), found.rdd.getNumPartitions()

    passed_on = read()
    spark.conf.set(source.PUSHDOWN, "false")  # the choice of the session
    try:
        assert read() == passed_on == ([5, 7], 1)
        assert spark.conf.get(source.PUSHDOWN) == "false"
    finally:
        spark.conf.unset(source.PUSHDOWN)
        source.register(spark)
    assert spark.conf.get(source.PUSHDOWN) == "true"
