"""Reports of histories with results computed by hand."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from peeklock_pipeline.jobs.report import ReportRequest
from peeklock_pipeline.jobs.report import report as make
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import EmptyLake, UnknownQueue
from peeklock_pipeline.transforms import report
from peeklock_pipeline.transforms.report_parts import parts
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.histories import NOON, ended, fill, history, later

HOUR = 3600


def utc(value: Any) -> Any:
    """Moments as they are said here: Spark gives them in the time of this machine, without saying so."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def rows(frame: DataFrame, *by: str) -> dict[Any, dict[str, Any]]:
    """The rows of a frame by their key."""
    found = [{name: utc(value) for name, value in row.asDict().items()} for row in frame.collect()]
    keys = [tuple(row[name] for name in by) for row in found]
    assert len(set(keys)) == len(keys)
    return {key[0] if len(key) == 1 else key: row for key, row in zip(keys, found, strict=True)}


@pytest.fixture(scope="module")
def known(spark: SparkSession) -> DataFrame:
    """Six messages of `orders` and one of `mail`."""
    archive = history(
        spark,
        [
            # sent, first delivered, last delivered, ended
            ended(1, 0, 2, 2, 5),
            ended(2, 10, 14, 20, 21, delivery_count=2, failure_count=1, last_failure="lock_expired"),
            ended(3, 20, 21, 90, 100, delivery_count=3, failure_count=2, last_failure="boom", available_at=later(80)),
            ended(4, 30, 36, 36, 36, outcome="received"),
            ended(5, 40, None, None, HOUR + 40, outcome="expired", delivery_count=0),
            ended(6, 50, 58, 70, HOUR + 60, outcome="purged", delivery_count=4, failure_count=4,
                  last_failure="lock_expired", dead_letter_reason="max_delivery_count_exceeded"),
            ended(7, HOUR, HOUR + 1, HOUR + 1, HOUR + 3, queue="mail", group_id="a"),
        ],
    )  # fmt: skip
    return parts(report.message_histories(archive)).cache()


def test_every_message_is_sent_in_one_hour_and_ends_in_one(known: DataFrame) -> None:
    found = rows(report.hours(known), "queue", "hour")
    noon, one = later(0), later(HOUR)
    assert set(found) == {("orders", noon), ("orders", one), ("mail", one)}
    counts = ("sent", "completed", "received", "expired", "purged", "dead_lettered", "cancelled")
    assert [found["orders", noon][name] for name in counts] == [6, 3, 1, 0, 0, 0, 0]
    assert [found["orders", one][name] for name in counts] == [0, 0, 0, 1, 0, 1, 0]
    assert [found["mail", one][name] for name in counts] == [1, 1, 0, 0, 0, 0, 0]


def test_deliveries_are_counted_over_those_delivered_at_all(known: DataFrame) -> None:
    orders = rows(report.queues(known), "queue")["orders"]
    assert (orders["delivered"], orders["deliveries"], orders["redelivered"]) == (5, 1 + 2 + 3 + 1 + 4, 3)
    assert orders["redelivery_share"] == pytest.approx(3 / 5)
    assert orders["deliveries_per_message"] == pytest.approx(11 / 5)


def test_lock_losses_lie_between_what_last_failures_prove_and_what_failures_allow(known: DataFrame) -> None:
    orders = rows(report.queues(known), "queue")["orders"]
    assert orders["failures"] == 1 + 2 + 4
    # Message 2: its one failure. Message 3: perhaps the first of two. Message 6: the last of four, perhaps all.
    assert (orders["lock_losses_at_least"], orders["lock_losses_at_most"]) == (1 + 0 + 1, 1 + 1 + 4)


def test_a_lock_lost_in_the_dead_letter_queue_is_a_loss_without_a_failure(spark: SparkSession) -> None:
    dead = ended(1, 0, 1, 9, 20, last_failure="lock_expired", dead_letter_reason="bad", delivery_count=2)
    (row,) = report.queues(parts(report.message_histories(history(spark, [dead])))).collect()
    assert (row.failures, row.lock_losses_at_least, row.lock_losses_at_most) == (0, 1, 1)


def test_times_are_of_those_messages_that_have_them(known: DataFrame) -> None:
    orders = rows(report.queues(known), "queue")["orders"]
    # Waiting: 2, 4, 6 and 8 s; of message 3 a delay has overwritten since when, message 5 was never delivered.
    assert [orders[f"waiting_{name}"] for name in ("p50", "p95", "p99")] == [4, 8, 8]
    # Processing: 3, 1 and 10 s, of those completed.
    assert [orders[f"processing_{name}"] for name in ("p50", "p95", "p99")] == [3, 10, 10]
    # End to end: 5, 11 and 80 s, and 6 s of the one received.
    assert [orders[f"end_to_end_{name}"] for name in ("p50", "p95", "p99")] == [6, 80, 80]


def test_quantiles_are_of_the_nearest_rank(spark: SparkSession) -> None:
    # A hundred messages that took 1, 2, ... 100 s.
    known = parts(report.message_histories(history(spark, [ended(n, 0, 0, 0, n) for n in range(1, 101)])))
    (row,) = report.queues(known).collect()
    assert [row.end_to_end_p50, row.end_to_end_p95, row.end_to_end_p99] == [50, 95, 99]


def test_where_nothing_was_delivered_there_is_no_share(spark: SparkSession) -> None:
    cancelled = ended(1, 0, None, None, 5, outcome="cancelled", delivery_count=0)
    known = parts(report.message_histories(history(spark, [cancelled])))
    (row,) = report.queues(known).collect()
    assert (row.cancelled, row.delivered, row.redelivery_share, row.deliveries_per_message) == (1, 0, None, None)
    assert row.waiting_p50 is row.processing_p50 is row.end_to_end_p50 is None


SNAPSHOT = (
    "sequence_number bigint, queue string, group_id string, enqueued_at timestamp, available_at timestamp, "
    "first_delivered_at timestamp, last_delivered_at timestamp, delivery_count int, failure_count int, "
    "last_failure string, dead_letter_reason string, state string, dead_lettered_at timestamp"
)


def live(number: int, state: str, reason: str | None = None) -> tuple[Any, ...]:
    """A message sent at noon, delivered once if it is dead, and dead an hour later."""
    dead = state == "dead_lettered"
    at = later(1) if dead else None
    return (
        number, "orders", None, later(0), later(0), at, at, int(dead), 0, None, reason, state,
        later(HOUR) if dead else None,
    )  # fmt: skip


def test_what_lies_in_the_dead_letter_queue_is_known_from_a_snapshot(spark: SparkSession) -> None:
    archive = history(
        spark,
        [
            ended(1, 0, 1, 5, 6, dead_letter_reason="bad"),
            ended(2, 0, 1, 1, 2),
        ],
    )
    taken = [
        live(2, "available"),  # archived since
        live(3, "available"),
        live(4, "dead_lettered", "bad"),
        live(5, "dead_lettered"),
    ]
    known = parts(report.message_histories(archive, spark.createDataFrame(taken, SNAPSHOT), NOON.date()))
    found = rows(report.reasons(known), "reason")
    assert {reason: (row["messages"], row["waiting"]) for reason, row in found.items()} == {
        "bad": (2, 1),
        report.NO_REASON: (1, 1),
    }
    hours = rows(report.hours(known), "hour")
    noon, one = later(0), later(HOUR)
    assert [(hours[at]["sent"], hours[at]["dead_lettered"]) for at in (noon, one)] == [(5, 1), (0, 2)]


def test_a_reason_that_a_report_gives_itself_is_in_quotes_if_a_client_gave_it(spark: SparkSession) -> None:
    given = [report.NO_REASON, report.OTHER_REASONS, report.OTHER_REASONS, f'"{report.OTHER_REASONS}"', '"bad"']
    archive = history(spark, [ended(n, 0, 1, 5, 6, dead_letter_reason=reason) for n, reason in enumerate(given)])
    taken = [live(11, "dead_lettered"), live(12, "dead_lettered", report.NO_REASON)]
    known = parts(report.message_histories(archive, spark.createDataFrame(taken, SNAPSHOT), NOON.date()))
    assert {row.reason: row.messages for row in report.reasons(known).collect()} == {
        report.NO_REASON: 1,
        '"(none given)"': 2,
        '"(all others)"': 2,
        '""(all others)""': 1,
        '"bad"': 1,
    }


def test_the_slowest_groups_come_first_and_are_bounded(spark: SparkSession) -> None:
    took = {"quick": [1, 2], "slow": [3, 90], "even": [50, 50, 50]}
    messages = [(group, seconds) for group, all_of in took.items() for seconds in all_of]
    rows = [ended(n, 0, 0, 0, s, group_id=group) for n, (group, s) in enumerate(messages)]
    known = parts(report.message_histories(history(spark, rows)))
    found = report.slowest_groups(known, 2).collect()
    assert [(row.group_id, row.messages, row.end_to_end_p50, row.end_to_end_p95) for row in found] == [
        ("slow", 2, 3, 90),
        ("even", 3, 50, 50),
    ]


def test_groups_count_their_completed_messages(spark: SparkSession) -> None:
    rows = [
        ended(1, 0, 1, 2, 3, group_id="a", delivery_count=2),
        ended(2, 0, 1, 2, 3, group_id="a"),
        ended(3, 0, 1, 2, 9, group_id="a", delivery_count=5, dead_letter_reason="bad", outcome="purged"),
        ended(4, 0, None, None, 9, group_id="b", delivery_count=0, outcome="expired"),
    ]
    (group,) = report.slowest_groups(parts(report.message_histories(history(spark, rows)))).collect()
    assert (group.group_id, group.messages, group.redelivered, group.end_to_end_p95) == ("a", 2, 1, 3)


# ---- the job ---------------------------------------------------------------------------------------------------------


def test_a_report_about_one_queue_leaves_the_tables_alone(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2), *(ended(n, 0, 1, 1, 2, queue="mail") for n in range(2, 12))])
    done = make(spark, lake, tmp_path / "mail.html", ReportRequest("mail"))
    assert (done.messages, done.queues, done.tables) == (10, 1, ())
    assert lake.root.names() == ["archive"]


def test_what_is_not_there_is_refused_in_a_sentence(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2)])
    with pytest.raises(UnknownQueue, match="No message of a queue 'nowhere'"):
        make(spark, lake, tmp_path / "report.html", ReportRequest("nowhere"))
    with pytest.raises(EmptyLake, match="export` first"):
        make(spark, Lake(tmp_path / "none"), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_lake_that_lost_its_last_message_has_a_page_that_reports_it(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    fill(lake, [])
    done = make(spark, lake, tmp_path / "report.html")
    assert done.messages == 0
    assert "No messages yet" in (tmp_path / "report.html").read_text()


# ---- the command -----------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_sentence_and_status_2(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "peeklock-pipeline"), "report", "--lake", str(tmp_path / "none")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Nothing was exported to ")
    assert "Traceback" not in ran.stderr


def test_a_period_below_an_hour_is_refused(run_refused: Callable[..., str], tmp_path: Path) -> None:
    assert "at least 1h" in run_refused("report", "--lake", tmp_path / "none", "--last", "30m")


def test_the_command_writes_the_page_of_a_period(
    lake: Lake, run_command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2), ended(2, 5 * HOUR, 5 * HOUR, 5 * HOUR, 5 * HOUR, queue="mail")])
    page = tmp_path / "report.html"
    period = ("--from", "2026-03-05T12:00", "--to", "2026-03-05T13:00", "--from-scratch", "--json")
    code, out, err = run_command("report", "--lake", lake.root, "--out", page, *period)
    assert code == 0, err
    done = json.loads(out)
    assert (done["messages"], done["queues"], done["hours"]) == (1, 1, 2)
    assert set(done["totals"]) == {field.name for field in report.MEASURES}
    assert page.exists()
