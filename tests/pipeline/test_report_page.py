"""The page of a report: its views, its plots, and what it says about the period before."""

from dataclasses import dataclass
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from peeklock_pipeline.broker_tables import UNARCHIVED
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.report import ReportRequest, ReportResult
from peeklock_pipeline.jobs.report import report as make
from peeklock_pipeline.jobs.report_page import MAX_GROUPS, MAX_QUEUES, MAX_REASONS, compare, summarise, width_for
from peeklock_pipeline.jobs.report_parts import report_sources
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.page.links import MAX_NAME, fragment, shortened
from peeklock_pipeline.page.summary import ViewKey
from peeklock_pipeline.period import Period
from peeklock_pipeline.transforms import report
from pyspark.sql import SparkSession

from tests.console.browser import faults_of_accessibility, open_browser
from tests.pipeline.histories import NOON, ended, fill

HOUR = 3600
DAY = 24 * HOUR


class LoadedResources(HTMLParser):
    """Collects the resources that a page would load, its views and links, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.pieces: list[str] = []
        self.labels: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "srcset") or name == "href"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if ("role", "img") in attrs:
            self.labels += [value or "" for name, value in attrs if name == "aria-label"]

    def handle_data(self, data: str) -> None:
        self.text += data
        self.pieces.append(data)

    @property
    def links(self) -> set[str]:
        """The fragments to which the page links."""
        return {target.removeprefix("#") for target in self.loads if target.startswith("#")}

    @property
    def words(self) -> str:
        """The text with single spaces, also between elements."""
        return " ".join(" ".join(self.pieces).split())


UNSAFE_TEXT = "<script>alert('\"&')</script>"


@pytest.fixture(scope="module")
def filled_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of three queues over two days, in which messages failed, died and belong to groups."""
    lake = Lake(tmp_path_factory.mktemp("filled") / "lake")
    rows = [
        *(ended(n, n * 600, n * 600 + 1, n * 600 + 1, n * 600 + 3, group_id=f"g{n % 3}") for n in range(1, 289)),
        *(ended(n, DAY, DAY + 1, DAY + 9, DAY + 10, queue="mail", delivery_count=2, failure_count=1,
                last_failure="lock_expired") for n in range(300, 310)),
        ended(400, DAY, DAY + 1, DAY + 2, DAY + 3, queue="a.b", dead_letter_reason=UNSAFE_TEXT, failure_count=2, outcome="purged",
              last_failure="boom"),
    ]  # fmt: skip
    fill(lake, rows)
    return lake


@dataclass(frozen=True, slots=True)
class ReportRun:
    """A finished report, its progress, and its page."""

    done: ReportResult
    progress: list[tuple[int, int]]
    path: Path
    page: LoadedResources


@pytest.fixture(scope="module")
def report_run(filled_lake: Lake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReportRun:
    """The report of all queues, in a directory that it made."""
    reported: list[tuple[int, int]] = []
    path = tmp_path_factory.mktemp("made") / "out" / "report.html"
    done = make(spark, filled_lake, path, progress=lambda *counts: reported.append(counts))
    return ReportRun(done, reported, path, LoadedResources(path.read_text()))


def test_a_report_leaves_tables_and_one_page_that_loads_nothing(
    report_run: ReportRun, filled_lake: Lake, spark: SparkSession
) -> None:
    assert (report_run.done.messages, report_run.done.queues) == (299, 3)
    assert report_run.progress[-1] == (6, 6)
    kept = {row.queue: row.sent for row in filled_lake.read(spark, report.QUEUES).collect()}
    assert kept == {"orders": 288, "mail": 10, "a.b": 1}
    assert filled_lake.read(spark, report.HOURS).count() == report_run.done.hours
    page = report_run.page
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert UNSAFE_TEXT in page.text
    assert any("10 of 299 messages (3.3 %) were delivered more than once" in label for label in page.labels)
    assert any("10–11 locks ran out" in label for label in page.labels)


def test_each_queue_group_and_reason_has_a_view_and_each_link_a_target(report_run: ReportRun) -> None:
    page = report_run.page
    assert {"overview", "queue=orders", "queue=mail", "queue=a.b", "group=orders/g1"} <= set(page.ids)
    assert any(name.startswith("reason=%3Cscript") for name in page.ids)
    assert page.links <= set(page.ids)
    assert {name for name in page.ids if "=" in name and "-" not in name.split("=")[0]} <= page.links
    assert len(set(page.ids)) == len(page.ids)


def test_the_page_says_that_the_end_of_messages_without_an_archive_is_unknown(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    dead = {"queue": "clicks", "outcome": "purged", "dead_letter_reason": "poison"}
    fill(lake, [ended(n, n, n, n, n + 1, **dead) for n in range(14)])
    day, taken = NOON.replace(hour=0), {"queue": "clicks", "taken_at": NOON}
    left = [{"day": day, "messages": 20}, {"day": day, "messages": 6}, {"day": day - timedelta(days=9), "messages": 5}]
    rows = pa.Table.from_pylist([taken | row for row in left], schema=UNARCHIVED.schema)
    lake.replace(UNARCHIVED, list(write(rows, lake.directory(UNARCHIVED), UNARCHIVED)))
    request = ReportRequest(period=Period(day, day + timedelta(days=1)), now=NOON)
    done = make(spark, lake, tmp_path / "report.html", request)
    assert (done.messages, done.unarchived) == (14, 26)
    words = LoadedResources((tmp_path / "report.html").read_text()).words
    assert "Sent 40 messages" in words
    assert "Completed 0 % to 65.0 % 0 of 14 that ended; of 26 messages unknown" in words
    assert "Dead-lettered 35.0 % to 100 % 14 of 14 that ended; of 26 messages unknown" in words
    assert words.count("26 messages left without a row in the archive, because their queue keeps none") == 2


def test_every_plot_says_whether_its_axis_is_logarithmic(report_run: ReportRun) -> None:
    plots = [label for label in report_run.page.labels if " over time: " not in label]
    for label in plots:
        is_time = label.startswith(("End to end", "Waiting", "Processing"))
        if "No message has a value" not in label:
            assert ("logarithmic axis" if is_time else "linear axis") in label
    assert report_run.path.read_text().count("logarithmic axis</text>") > 3


def test_without_a_period_nothing_is_compared(report_run: ReportRun) -> None:
    assert "compared" not in report_run.page.words.lower()


# ---- a period --------------------------------------------------------------------------------------------------------


def test_a_period_is_compared_with_the_one_before_in_words(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *(ended(n, n * 60, n * 60 + 1, n * 60 + 1, n * 60 + 2) for n in range(20)),
        *(ended(100 + n, DAY + n * 60, DAY + n * 60 + 1, DAY + n * 60 + 1, DAY + n * 60 + 6) for n in range(30)),
        ended(200, DAY, DAY + 1, DAY + 1, DAY + 2, queue="new"),
        ended(300, 3 * DAY, 3 * DAY, 3 * DAY, 3 * DAY),  # after the period
    ]
    fill(lake, rows)
    period = Period(NOON + timedelta(days=1), NOON + timedelta(days=2))
    done = make(spark, lake, tmp_path / "report.html", ReportRequest(period=period))
    assert (done.messages, done.queues, done.hours) == (31, 2, 4)
    page = LoadedResources((tmp_path / "report.html").read_text())
    assert "6 Mar 2026, 12:00 to 7 Mar 2026, 12:00 UTC. 31 messages in 2 queues." in page.words
    assert "Compared with the 24 hours before. " in page.words
    assert "Sent 31 20 55 % more than before (20)" in page.words
    assert "Half completed within 6 s 2 s 3 times as long as before (2 s)" in page.words
    assert "Sent 1 message none before" in page.words  # of the queue new
    make(spark, lake, tmp_path / "early.html", ReportRequest(period=period.before))
    early = LoadedResources((tmp_path / "early.html").read_text())
    assert "its first message is of 2026-03-05 12:00. So nothing is compared." in early.words
    assert "Compared with" not in early.words


def test_a_period_without_a_message_says_which_times_the_lake_has(
    filled_lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    period = Period(NOON + timedelta(days=30), NOON + timedelta(days=31))
    done = make(spark, filled_lake, tmp_path / "report.html", ReportRequest("mail", period))
    assert (done.messages, done.queues) == (0, 0)
    text = LoadedResources((tmp_path / "report.html").read_text()).words
    assert "No messages in this period The lake has messages from 6 Mar 2026, 12:00 to 6 Mar 2026, 12:00 UTC." in text


def test_a_message_that_ended_before_it_was_sent_is_in_totals_and_plots(lake: Lake, spark: SparkSession) -> None:
    midnight = 12 * HOUR
    fill(lake, [ended(1, midnight + 0.2, None, None, midnight - 0.3), ended(2, midnight, None, None, midnight + 9)])
    found = []
    with report_sources(spark, lake, None) as sources:
        for hours in (11, 12):
            period = Period(NOON + timedelta(hours=hours), NOON + timedelta(hours=hours + 1))
            overview = summarise(sources, None, period, NOON).overview
            assert overview is not None
            plotted = [interval.measures for interval in overview.intervals if interval.measures]
            found += [(overview.totals[name], sum(each[name] for each in plotted)) for name in ("sent", "completed")]
    assert found == [(0, 0), (1, 1), (2, 2), (1, 1)]


def test_a_message_that_a_clock_far_ahead_has_dated_is_in_the_totals(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2), ended(2, 3 * DAY, None, None, 10)])
    period = Period(NOON + timedelta(days=3), NOON + timedelta(days=3, hours=2))
    done = make(spark, lake, tmp_path / "report.html", ReportRequest(None, period))
    assert (done.messages, done.totals["sent"]) == (1, 1)


def test_a_period_that_retention_has_cut_is_not_compared() -> None:
    period = Period(NOON, NOON + timedelta(days=1))
    first = NOON - timedelta(days=40)
    assert compare(period, first, None).before == period.before
    assert compare(period, first, NOON.date() - timedelta(days=2)).before == period.before
    cut = compare(period, first, NOON.date() - timedelta(days=1))
    assert cut.before is None
    assert "its retention has removed messages up to 2026-03-04" in cut.reason


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_the_page_does_not_grow_with_history(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    long = "x" * 3000
    hours = [
        ended(n, n * HOUR, n * HOUR, n * HOUR, n * HOUR + n % 7, queue=f"q{(n - 1) // 50}", group_id=f"{long}{n}",
              dead_letter_reason=f"{long}{n}" if n % 2 else None)
        for n in range(1, 2001)
    ]  # fmt: skip
    fill(lake, hours)
    done = make(spark, lake, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = LoadedResources(text)
    assert (done.messages, done.queues) == (2000, 40)
    assert "all 20 others" in page.words
    assert "The 20 largest queues have a view each; 20 more are summed up." in page.words
    views = [name for name in page.ids if name.startswith(("queue=", "group=", "reason="))]
    assert len(views) == MAX_QUEUES + MAX_GROUPS + MAX_REASONS
    assert len(text) < 2_000_000
    assert "x" * (MAX_NAME + 1) not in page.text


def test_a_long_name_has_a_short_fragment_of_its_own() -> None:
    names = [fragment(ViewKey("reason", None, "ü" * 500 + end)) for end in "ab"]
    assert len(set(names)) == 2
    assert all(len(name) <= 200 and name.isascii() for name in names)
    assert fragment(ViewKey("group", "orders", "a b/c")) == "group=orders/a%20b%2Fc"
    assert fragment(ViewKey("reason", None, names[0].removeprefix("reason="))) != names[0]


def test_a_name_without_a_visible_letter_is_a_link_that_can_be_read() -> None:
    assert shortened(" \u200b") == "U+0020 U+200B"
    assert shortened(" a ") == " a "
    assert len(shortened("\n" * 500)) == MAX_NAME


def test_the_period_before_one_without_end_begins_with_the_year_1() -> None:
    period = Period(NOON, NOON.replace(year=9999))
    assert period.before.begin.year == 1
    assert compare(period, NOON, None).before is None


@pytest.mark.parametrize(
    ("seconds", "width"), [(0, 1), (72, 1), (73, 5), (3600, 60), (72 * HOUR, HOUR), (73 * HOUR, 6 * HOUR), (1e12, 441 * 365 * DAY)]
)  # fmt: skip
def test_time_is_cut_into_no_more_parts_than_a_plot_shows(seconds: float, width: int) -> None:
    assert width_for(seconds) == width


# ---- in a browser ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [375, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_views_are_selected_by_links_without_script(report_run: ReportRun, width: int, theme: str) -> None:
    async with open_browser() as browser:
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True
        )  # fmt: skip
        page = await context.new_page()
        await page.goto(report_run.path.as_uri())
        assert await page.locator("h1:visible").all_inner_texts() == ["All queues"]
        assert await faults_of_accessibility(page) == []
        await page.locator("a[href='#queue=mail']").first.focus()
        await page.keyboard.press("Enter")
        assert await page.locator("h1:visible").all_inner_texts() == ["Queue mail"]
        assert await faults_of_accessibility(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await page.locator("h1:visible").all_inner_texts() == ["All queues"]
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await context.close()
