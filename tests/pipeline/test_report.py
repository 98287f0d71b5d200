"""Reports of histories with results computed by hand."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from peeklock_pipeline.jobs.report import ReportResult, width_for
from peeklock_pipeline.jobs.report import report as make
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.page import formatting
from peeklock_pipeline.page.plots import FIRST, SECOND, THIRD, VARIABLES, Curve, Plot, draw
from peeklock_pipeline.refusals import EmptyLake, UnknownQueue
from peeklock_pipeline.transforms import report
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.histories import ended, fill, history, later

HOUR = 3600
ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "app/console/static"
STYLE_SHEET = ROOT / "pipeline/peeklock_pipeline/page/report.css"


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
    return report.message_histories(archive).cache()


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
    (row,) = report.queues(report.message_histories(history(spark, [dead]))).collect()
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
    known = report.message_histories(history(spark, [ended(n, 0, 0, 0, n) for n in range(1, 101)]))
    (row,) = report.queues(known).collect()
    assert [row.end_to_end_p50, row.end_to_end_p95, row.end_to_end_p99] == [50, 95, 99]


def test_where_nothing_was_delivered_there_is_no_share(spark: SparkSession) -> None:
    known = report.message_histories(
        history(spark, [ended(1, 0, None, None, 5, outcome="cancelled", delivery_count=0)])
    )
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


def test_what_lies_in_the_dead_letter_queue_is_known_from_a_snapshot(known: DataFrame, spark: SparkSession) -> None:
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
    known = report.message_histories(archive, spark.createDataFrame(taken, SNAPSHOT))
    found = rows(report.reasons(known), "reason")
    assert {reason: (row["messages"], row["waiting"]) for reason, row in found.items()} == {
        "bad": (2, 1),
        report.NO_REASON: (1, 1),
    }
    hours = rows(report.hours(known), "hour")
    noon, one = later(0), later(HOUR)
    assert [(hours[at]["sent"], hours[at]["dead_lettered"]) for at in (noon, one)] == [(5, 1), (0, 2)]


def test_the_slowest_groups_come_first_and_are_bounded(spark: SparkSession) -> None:
    took = {"quick": [1, 2], "slow": [3, 90], "even": [50, 50, 50]}
    messages = [(group, seconds) for group, all_of in took.items() for seconds in all_of]
    known = report.message_histories(
        history(spark, [ended(n, 0, 0, 0, s, group_id=group) for n, (group, s) in enumerate(messages)])
    )
    found = report.slowest_groups(known, 2).collect()
    assert [(row.group_id, row.messages, row.end_to_end_p50, row.end_to_end_p95) for row in found] == [
        ("slow", 2, 3, 90),
        ("even", 3, 50, 50),
    ]


def test_time_is_cut_into_equal_parts(known: DataFrame) -> None:
    found = rows(report.over_time(known, 7200), "at")
    assert list(found) == [later(0)]
    (row,) = found.values()
    assert (row["sent"], row["completed"], row["redelivered"]) == (7, 4, 3)


def test_all_queues_but_some_are_measured_as_one(known: DataFrame) -> None:
    found = rows(report.queues(report.queue_names(known, ["mail"])), "queue")
    assert {queue: row["sent"] for queue, row in found.items()} == {"mail": 1, None: 6}


# ---- the job and its page --------------------------------------------------------------------------------------------


class LoadedResources(HTMLParser):
    """Collects the resources that a page would load, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.labels: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "srcset") or name == "href"]
        if ("role", "img") in attrs:
            self.labels += [value or "" for name, value in attrs if name == "aria-label"]

    def handle_data(self, data: str) -> None:
        self.text += data


UNSAFE_TEXT = "<script>alert('\"&')</script>"


@pytest.fixture(scope="module")
def filled_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of three queues over two days, in which messages failed, died and belong to groups."""
    lake, day = Lake(tmp_path_factory.mktemp("filled") / "lake"), 24 * HOUR
    rows = [
        *(ended(n, n * 600, n * 600 + 1, n * 600 + 1, n * 600 + 3, group_id=f"g{n % 3}") for n in range(1, 289)),
        *(ended(n, day, day + 1, day + 9, day + 10, queue="mail", delivery_count=2, failure_count=1,
                last_failure="lock_expired") for n in range(300, 310)),
        ended(400, day, day + 1, day + 2, day + 3, queue="a.b", dead_letter_reason=UNSAFE_TEXT, failure_count=2, outcome="purged",
              last_failure="boom"),
    ]  # fmt: skip
    fill(lake, rows)
    return lake


@dataclass(frozen=True, slots=True)
class ReportRun:
    """A finished report, its progress, and its page."""

    done: ReportResult
    progress: list[tuple[int, int]]
    page: Path


@pytest.fixture(scope="module")
def report_run(filled_lake: Lake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReportRun:
    """The report of all queues, in a directory that it made."""
    reported: list[tuple[int, int]] = []
    page = tmp_path_factory.mktemp("made") / "out" / "report.html"
    done = make(spark, filled_lake, page, progress=lambda *counts: reported.append(counts))
    return ReportRun(done, reported, page)


def test_a_report_leaves_tables_and_one_page_that_loads_nothing(
    report_run: ReportRun, filled_lake: Lake, spark: SparkSession
) -> None:
    assert (report_run.done.messages, report_run.done.queues) == (299, 3)
    assert report_run.progress[-1] == (5, 5)
    kept = rows(filled_lake.read(spark, report.QUEUES), "queue")
    assert {queue: row["sent"] for queue, row in kept.items()} == {"orders": 288, "mail": 10, "a.b": 1}
    assert filled_lake.read(spark, report.HOURS).count() == report_run.done.hours
    page = LoadedResources(report_run.page.read_text())
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert UNSAFE_TEXT in page.text
    assert {"End to end", "Dead-letter reasons", "Slowest groups"} <= {line.strip() for line in page.text.splitlines()}
    # Every drawing is told in words: seven figures, the first of them in two sizes.
    assert len(page.labels) == 8
    assert any("10 of 299 messages (3.3 %) were delivered more than once" in label for label in page.labels)
    assert any("10–11 locks ran out" in label for label in page.labels)


def test_a_report_about_one_queue_leaves_the_tables_alone(
    report_run: ReportRun, filled_lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    before = versions(filled_lake)
    done = make(spark, filled_lake, tmp_path / "mail.html", "mail")
    assert (done.messages, done.tables) == (10, ())
    assert versions(filled_lake) == before


def test_a_second_report_replaces_the_tables(report_run: ReportRun, filled_lake: Lake, spark: SparkSession) -> None:
    assert make(spark, filled_lake, report_run.page) == report_run.done
    assert filled_lake.read(spark, report.GROUPS).count() == 3


def versions(lake: Lake) -> dict[str, int]:
    """How often each table of a lake was changed."""
    return {str(table.table_uri): table.version() for table in lake.tables()}


def test_what_is_not_there_is_refused_in_a_sentence(filled_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnknownQueue, match="No message of a queue 'nowhere'"):
        make(spark, filled_lake, tmp_path / "report.html", "nowhere")
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


def test_the_page_does_not_grow_with_history(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    hour = [
        ended(n, n * HOUR, n * HOUR, n * HOUR, n * HOUR + n % 7, queue=f"q{(n - 1) // 50}", group_id=f"g{n}",
              dead_letter_reason=f"reason {n}" if n % 2 else None)
        for n in range(1, 2001)
    ]  # fmt: skip
    fill(lake, hour)
    done = make(spark, lake, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert (done.messages, done.queues) == (2000, 40)
    assert "all 20 others" in LoadedResources(text).text
    assert len(text) < 400_000


@pytest.mark.parametrize(
    ("seconds", "width"), [(0, 1), (72, 1), (73, 5), (3600, 60), (72 * HOUR, HOUR), (73 * HOUR, 6 * HOUR), (1e12, 365 * 24 * HOUR)]
)  # fmt: skip
def test_time_is_cut_into_no_more_parts_than_a_plot_shows(seconds: float, width: int) -> None:
    assert width_for(seconds) == width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0005, "0.5 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (90, "90 s"), (150, "2.5 min"), (7200, "2 h"),
     (4e8, "4,630 d"), (None, "–")],
)  # fmt: skip
def test_times_are_said_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0 %"), (0.0004, "< 0.1 %"), (0.031, "3.1 %"), (0.9999, "99.9 %"), (1, "100 %"), (None, "–")]
)
def test_a_share_is_whole_only_where_it_is(part: float | None, text: str) -> None:
    assert formatting.share(part) == text


def test_the_same_plot_is_drawn_the_same() -> None:
    plot = Plot("x", [later(0), later(60), later(120)], [Curve("a", [1, None, 3])], "count")
    assert draw(plot, 360, 200) == draw(plot, 360, 200)


def test_plots_have_the_colours_and_dashes_of_the_console() -> None:
    curves = [Curve(name, [1, 2], colour) for name, colour in (("a", FIRST), ("b", SECOND), ("c", THIRD))]
    drawn = draw(Plot("x", [later(0), later(60)], curves, "count"), 360, 200)
    assert {f"--series-{number}" for number in (1, 2, 3)} | {"--ink-soft", "--line"} == set(
        re.findall(r"--[a-z0-9-]+", drawn)
    )
    dashes = re.search(r"const DASHES = (.*);", (CONSOLE / "plots.js").read_text())
    assert dashes
    assert {f"stroke-dasharray: {on},{off}" for on, off in json.loads(dashes[1])[1:3]} <= set(
        re.findall(r"stroke-dasharray: [^;]*", drawn)
    )


def test_the_page_has_the_tokens_of_the_console() -> None:
    """It is one product to look at. The pipeline imports nothing of the server, so the values are compared here."""
    own, console = (tokens(path.read_text()) for path in (STYLE_SHEET, CONSOLE / "console.css"))
    assert own == {name: console.get(name) for name in own}
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", STYLE_SHEET.read_text()))
    assert used | {f"--{name}" for name in VARIABLES.values()} == set(own)


def tokens(style_sheet: str) -> dict[str, str]:
    """The custom properties of the root, by name."""
    (root,) = re.findall(r"^:root \{(.*?)^\}", style_sheet, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"(--[a-z0-9-]+): ([^;]*);", root))


# ---- the command -----------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_sentence_and_status_2(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "peeklock-pipeline"), "report", "--lake", str(tmp_path / "none")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Nothing was exported to ")
    assert "Traceback" not in ran.stderr
