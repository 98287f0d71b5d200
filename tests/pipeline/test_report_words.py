"""How a report writes numbers, changes and periods, and draws plots; no Spark, no lake."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from peeklock_pipeline.jobs.report_page import NOTHING
from peeklock_pipeline.page import changes, formatting, render
from peeklock_pipeline.page.plots import FIRST, SECOND, THIRD, Curve, Plot, draw, spread_labels
from peeklock_pipeline.page.scales import ValueKind, scale_of
from peeklock_pipeline.page.summary import Comparison, Summary, View, ViewKey
from peeklock_pipeline.period import Period, parse_period
from peeklock_pipeline.refusals import BadOption

from tests.pipeline.histories import later

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "app/console/static"
STYLE_SHEET = ROOT / "pipeline/peeklock_pipeline/page/report.css"
NOW = datetime(2026, 11, 26, 14, 20, tzinfo=UTC)


def utc(day: int, hour: int = 0) -> datetime:
    """A moment in November 2026."""
    return datetime(2026, 11, day, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "period"),
    [
        ((None, None, None), None),
        ((None, None, "7d"), Period(utc(19, 15), utc(26, 15))),
        ((None, None, "90m"), Period(utc(26, 13), utc(26, 15))),
        (("2026-11-01", "2026-11-08", None), Period(utc(1), utc(8))),
        (("2026-11-01T14:30", None, None), Period(utc(1, 14), utc(26, 15))),
        (("2026-11-01T14:00+02:00", "2026-11-02", None), Period(utc(1, 12), utc(2))),
    ],
)
def test_a_period_has_whole_hours(options: tuple[str | None, str | None, str | None], period: Period | None) -> None:
    assert parse_period(*options, NOW) == period


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((None, "2026-11-08", None), "--to needs --from"),
        (("2026-11-08", None, "7d"), "either --last, or --from and --to"),
        (("2026-11-08", "2026-11-08", None), "is not after 2026-11-08 00:00"),
        (("yesterday", None, None), "such as 2026-11-01 or 2026-11-01T14:00; 'yesterday' is not"),
        ((None, None, "59m"), "at least 1h"),
        ((None, None, "a week"), "An age is a number and a unit"),
        (("1969-12-31", None, None), "A period begins in 1970 at the earliest"),
        (("0001-01-01T00:00+05:00", None, None), "such as 2026-11-01 or 2026-11-01T14:00"),
        ((None, None, "999999d"), "A period begins in 1970 at the earliest"),
    ],
)
def test_what_is_no_period_is_refused(options: tuple[str | None, str | None, str | None], reason: str) -> None:
    with pytest.raises(BadOption, match=re.escape(reason)):
        parse_period(*options, NOW)


def test_the_period_before_has_the_same_length() -> None:
    assert Period(utc(8), utc(15)).before == Period(utc(1), utc(8))


@pytest.mark.parametrize(("hours", "text"), [(1, "hour"), (24, "24 hours"), (36, "36 hours"), (168, "7 days")])
def test_a_length_is_in_days_if_it_has_several_whole_ones(hours: int, text: str) -> None:
    assert formatting.length(hours * 3600) == text


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (1120, 1000, "12 % more than before (1,000)"),
        (900, 1000, "10 % fewer than before (1,000)"),
        (3400, 1000, "3.4 times as many as before (1,000)"),
        (0, 10, "100 % fewer than before (10)"),
        (2_500_000, 1000, "2,500 times as many as before (1,000)"),
        (5, 0, "none before"),
        (0, 0, "as before"),
        (7, 7, "as before"),
    ],
)
def test_the_change_of_a_count_in_words(now: int, before: int, words: str) -> None:
    assert changes.count_change(now, before) == words


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (1.2, 0.9, "33.3 % longer than before (900 ms)"),
        (0.45, 0.9, "50 % shorter than before (900 ms)"),
        (2.25, 0.9, "2.5 times as long as before (900 ms)"),
        (1.0, 0.0, "0 ms before"),
        (-5.0, 5.0, "5 s before"),
        (5.0, -5.0, "-5 s before"),
        (1.0, None, "no value before"),
        (None, 1.0, "1 s before"),
        (None, None, "as before"),
    ],
)
def test_the_change_of_a_time_in_words(now: float | None, before: float | None, words: str) -> None:
    assert changes.time_change(now, before) == words


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (0.031, 0.012, "up from 1.2 %"),
        (0.012, 0.031, "down from 3.1 %"),
        (0.03101, 0.03102, "as before"),
        (0.5, None, "no value before"),
        (None, 0.5, "50.0 % before"),
    ],
)
def test_the_change_of_a_share_in_words(now: float | None, before: float | None, words: str) -> None:
    assert changes.ratio_change(now, before, formatting.share) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0005, "0.5 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (90, "90 s"), (150, "2.5 min"), (7200, "2 h"),
     (4e8, "4,630 d"), (0.9996, "1 s"), (119.99, "2 min"), (-90_000, "-25 h"), (None, "–")],
)  # fmt: skip
def test_times_are_said_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0 %"), (0.0004, "< 0.1 %"), (0.031, "3.1 %"), (0.9999, "99.9 %"), (1, "100 %"), (None, "–")]
)
def test_a_share_is_whole_only_where_it_is(part: float | None, text: str) -> None:
    assert formatting.share(part) == text


# ---- plots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["count", "share", "decimal", "duration"])
@pytest.mark.parametrize("values", [[], [0], [1], [3, 3], [0.0001], [0, 7.5, 1e9], [1.01, 1.02], [0.2, 0.21]])
def test_every_value_lies_on_its_axis_and_two_are_labelled(kind: ValueKind, values: list[float]) -> None:
    scale = scale_of(kind, values)
    assert scale.is_logarithmic == (kind == "duration")
    assert all(0 <= scale.place(value) <= 1 for value in [*values, *scale.ticks])
    assert 2 <= len(scale.ticks) <= 6
    assert scale.low < scale.high


def test_equal_distances_of_a_logarithmic_axis_are_equal_factors() -> None:
    scale = scale_of("duration", [0.1, 1, 10])
    low, middle, high = (scale.place(value) for value in (0.1, 1, 10))
    assert middle - low == pytest.approx(high - middle)


def percentiles(*ends: float) -> Plot:
    """A plot of percentiles with these last values."""
    curves = [
        Curve(name, [1.0, end], series)
        for name, end, series in zip(("p50", "p95", "p99"), ends, (FIRST, SECOND, THIRD), strict=True)
    ]
    return Plot([later(0), later(60)], curves, "duration")


def names(drawn: str) -> list[str]:
    """The labels of the curves, from the top."""
    return re.findall(r'<text class="name\d"[^>]*>([^<]*)</text>', drawn)


def test_curves_that_end_in_the_same_value_share_one_label() -> None:
    assert names(draw(percentiles(2, 50, 60), 360, 200)) == ["p99", "p95", "p50"]
    assert names(draw(percentiles(2, 50, 50), 360, 200)) == ["p95 = p99", "p50"]
    assert names(draw(percentiles(2, 2, 2), 360, 200)) == ["p50 = p95", "= p99"]


def test_where_curves_coincide_dashes_lie_on_the_line_and_on_wide_dots() -> None:
    drawn = draw(percentiles(2, 2, 2), 360, 200)
    assert re.findall(r'class="series(\d)"', drawn) == [str(number) for number in (THIRD, FIRST, SECOND)]
    assert re.search(r"\.series3 \{[^}]*stroke-width: 4;", STYLE_SHEET.read_text())


def test_labels_never_overlap() -> None:
    places = spread_labels([10, 12, 190, 191], [14, 28, 14, 14], 192)
    assert all(below - above >= height for (above, below), height in zip(pairwise(places), (14, 28, 14), strict=True))
    assert places[-1] <= 192


def test_a_value_between_gaps_is_a_dot() -> None:
    drawn = draw(Plot([later(0), later(60), later(120)], [Curve("a", [1, None, 3])], "count"), 360, 200)
    assert drawn.count("<circle") == 2
    assert 'class="series1"' not in drawn


def test_the_same_plot_is_drawn_the_same() -> None:
    assert draw(percentiles(1, 2, 3), 360, 200) == draw(percentiles(1, 2, 3), 360, 200)


def test_curves_have_the_dashes_of_the_console() -> None:
    dashes = re.search(r"const DASHES = (.*);", (CONSOLE / "plots.js").read_text())
    assert dashes
    own = dict(re.findall(r"\.series(\d) \{[^}]*stroke-dasharray: ([\d ]+);", STYLE_SHEET.read_text()))
    assert own == {str(number + 1): f"{on} {off}" for number, (on, off) in enumerate(json.loads(dashes[1])[:3][1:], 1)}


def test_the_page_has_the_tokens_of_the_console() -> None:
    """It is one product to look at. The pipeline imports nothing of the server, so the values are compared here."""
    own, console = (tokens(path.read_text()) for path in (STYLE_SHEET, CONSOLE / "console.css"))
    assert own == {name: console.get(name) for name in own}
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", STYLE_SHEET.read_text())) == set(own)


def tokens(style_sheet: str) -> dict[str, str]:
    """The custom properties of the root, by name."""
    (root,) = re.findall(r"^:root \{(.*?)^\}", style_sheet, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"(--[a-z0-9-]+): ([^;]*);", root))


@pytest.mark.parametrize(
    ("bounds", "text"),
    [((0, 1), "unknown"), ((0.35, 1), "35.0 % to 100 %"), ((0, 0), "0 %"), ((0.97, 0.9701), "97.0 %")],
)
def test_a_share_of_which_a_part_is_unknown_has_two_ends(bounds: tuple[float, float], text: str) -> None:
    assert formatting.share_between(*bounds) == text


def test_a_page_says_that_the_end_of_messages_without_a_row_is_unknown() -> None:
    measures = NOTHING | {"sent": 14, "dead_lettered": 14}
    views = [View(ViewKey(kind, name), measures, None, ()) for kind, name in (("all", None), ("queue", "clicks"))]
    empty = Summary(NOW, None, None, Comparison(None), None, None, 3600, None, (), 0, (), (), (), {"clicks": 26})
    some = replace(empty, first=NOW, last=NOW, overview=views[0], queues=views[1:], queues_in_all=1)
    words = [" ".join(re.sub(r"<[^>]+>", " ", render(summary)).split()) for summary in (empty, some)]
    sentence = "26 messages left without a row in the archive, because their queue keeps none: how and when they ended is unknown"
    assert [page.count(sentence) for page in words] == [1, 2]
    assert "Sent 40 messages Completed 0 % to 65.0 % 0 of 14 that ended; of 26 messages unknown" in words[1]
    assert "Dead-lettered 35.0 % to 100 % 14 of 14 that ended; of 26 messages unknown" in words[1]
