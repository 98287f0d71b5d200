"""The content of a report's page: which queues, reasons and groups have a view, and the numbers of each."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from math import ceil
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.jobs.report_parts import CLOCK_SKEW, ReportSources
from peeklock_pipeline.page.summary import Comparison, Interval, Measures, Summary, View, ViewKey
from peeklock_pipeline.period import Period
from peeklock_pipeline.results import rows
from peeklock_pipeline.transforms import report as ask
from peeklock_pipeline.transforms import report_parts, report_views
from peeklock_pipeline.transforms.report_views import VIEW, Chosen

YEAR = 365 * 86_400
WIDTHS = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
"""Possible widths of an interval of a plot, in seconds. Others are years."""

PART_SECONDS = 3600
"""The width of the parts. Narrower intervals are computed from messages, of at most `MAX_POINTS` quarters of an hour."""

MAX_POINTS = 72
MAX_QUEUES = 20
MAX_REASONS = 10
MAX_GROUPS = 10


def summarise(sources: ReportSources, queue: str | None, period: Period | None, now: datetime) -> Summary:
    """Return the content of a page. Its size does not grow with the history.

    Time is cut into about `MAX_POINTS` intervals at most. All but the largest queues are summed up.
    """
    known = report_views.extent(sources.parts, _in(period)).first()
    assert known is not None  # an aggregate without groups always has one row
    first, last = (known[name] and known[name].astimezone(UTC) for name in ("first", "last"))
    comparison = compare(period, first, sources.last_removed_day)
    unarchived = _unarchived(sources.unarchived, period)
    if first is None or known["queues"] == 0:
        return Summary(now, queue, period, comparison, first, last, PART_SECONDS, None, (), 0, (), (), (), unarchived)
    in_period = sources.parts.where(_in(period))
    chosen, groups = _choose(in_period)
    width = width_for(period.seconds if period else (last - first).total_seconds())
    views = _views(sources, chosen, period, comparison.before, width)
    (overview,) = (view for view in views if view.key.kind == "all")
    return Summary(
        made_at=now,
        queue=queue,
        period=period,
        comparison=comparison,
        first=first,
        last=last,
        width=width,
        overview=overview,
        queues=_ordered(views, chosen.queues),
        queues_in_all=known["queues"],
        reasons=rows(report_views.reasons_of_queues(in_period, chosen)),
        groups=groups,
        views=[view for view in views if view.key.kind in ("group", "reason")],
        unarchived=unarchived,
    )


def compare(period: Period | None, first: datetime | None, last_removed_day: date | None) -> Comparison:
    """Return the period before, if the lake has it whole, else the reason for which nothing is compared."""
    if period is None or first is None:
        return Comparison(None)
    before = period.before
    if first.replace(minute=0, second=0, microsecond=0) > before.begin:
        return Comparison(
            None, f"The lake does not have all of the time before: its first message is of {first:%F %H:%M}."
        )
    if last_removed_day and before.begin.date() <= last_removed_day:
        return Comparison(
            None,
            f"The lake does not have all of the time before: its retention has removed messages up to {last_removed_day}.",
        )
    return Comparison(before)


def width_for(seconds: float) -> int:
    """Return the narrowest of `WIDTHS`, or of some years, that cuts these seconds into at most `MAX_POINTS` intervals."""
    years = YEAR * max(1, ceil(seconds / YEAR / MAX_POINTS))
    return next((width for width in WIDTHS if seconds / width <= MAX_POINTS), years)


def _in(period: Period | None) -> Column:
    if period is None:
        return fn.lit(True)
    return (fn.col("hour") >= fn.lit(period.begin)) & (fn.col("hour") < fn.lit(period.end))


def _unarchived(counted: DataFrame, period: Period | None) -> dict[str, int]:
    """Return the messages of each queue that left it without a row, of the days that the period touches."""
    if period is not None:
        ends = fn.col("day") + fn.expr("INTERVAL 1 DAY")
        counted = counted.where((fn.col("day") < fn.lit(period.end)) & (ends > fn.lit(period.begin)))
    return {
        row.queue: row.messages for row in counted.groupBy("queue").agg(fn.sum("messages").alias("messages")).collect()
    }


def _choose(in_period: DataFrame) -> tuple[Chosen, list[dict[str, Any]]]:
    """Return what has a view, and the slowest groups."""
    found = rows(report_views.largest_queues(in_period, MAX_QUEUES))
    reasons = rows(report_views.most_frequent_reasons(in_period, MAX_REASONS))
    groups = rows(ask.slowest_groups(in_period, MAX_GROUPS))
    names = [(row["queue"], row["group_id"]) for row in groups]
    return Chosen([row["queue"] for row in found], [row["reason"] for row in reasons], names), groups


def _views(
    sources: ReportSources, chosen: Chosen, period: Period | None, before: Period | None, width: int
) -> list[View]:
    totals: dict[ViewKey, Measures] = {}
    olds: dict[ViewKey, Measures] = {}
    intervals: dict[ViewKey, list[Interval]] = {}
    for row in _measured(sources, chosen, period, before, width):
        if row["at"] is not None:
            intervals.setdefault(_key(row), []).append(Interval(row["at"].astimezone(UTC), row))
        else:
            (olds if row["is_before"] else totals)[_key(row)] = _measures(row)
    return [
        View(key, measures, olds.get(key, NOTHING) if before else None, intervals.get(key, ()))
        for key, measures in totals.items()
    ]


def _measured(
    sources: ReportSources, chosen: Chosen, period: Period | None, before: Period | None, width: int
) -> list[dict[str, Any]]:
    """Return the rows of `report_views.measures_of_views`: those of whole periods are of parts."""
    parts = sources.parts.where(_in(period)).withColumn("is_before", fn.lit(False))
    if before:
        parts = parts.unionByName(sources.parts.where(_in(before)).withColumn("is_before", fn.lit(True)))
    if width >= PART_SECONDS:
        return rows(report_views.measures_of_views(parts, chosen, width))
    narrow = _narrow_parts(sources, chosen, period, width).withColumn("is_before", fn.lit(False))
    intervals = rows(report_views.measures_of_views(narrow, chosen, width))
    return [*rows(report_views.measures_of_views(parts, chosen)), *(row for row in intervals if row["at"] is not None)]


def _narrow_parts(sources: ReportSources, chosen: Chosen, period: Period | None, width: int) -> DataFrame:
    """Return the parts of the period for each interval that is narrower than an hour, from messages.

    Leaves out messages of which a clock was more than `CLOCK_SKEW` ahead of another.
    """
    since = (period.begin - CLOCK_SKEW).date() if period else date.min
    histories = sources.histories_since(since)
    if period is not None:
        histories = histories.where(fn.least("enqueued_at", "ended_at") < fn.lit(period.end))
        histories = histories.where((fn.col("date") >= fn.lit(since)) | fn.col("is_live"))
    slot = report_views.interval(fn.col("at"), width)
    in_groups = report_parts.in_groups(histories).where(chosen.has_group("group_id"))
    others = report_parts.queue_parts(histories, slot).unionByName(report_parts.reason_parts(histories, slot))
    return others.unionByName(report_parts.group_parts(in_groups, slot)).where(_in(period))


NOTHING: Measures = {
    **dict.fromkeys((field.name for field in ask.MEASURES), None),
    **dict.fromkeys(report_parts.COUNTS, 0),
}
"""The measures of a period in which nothing happened."""


def _measures(row: Measures) -> Measures:
    return {field.name: row[field.name] for field in ask.MEASURES}


def _key(row: Measures) -> ViewKey:
    return ViewKey(*(row[name] for name in VIEW))


def _ordered(views: Sequence[View], queues: Sequence[str]) -> list[View]:
    """Return the views of queues, the largest first, and the sum of the others last."""
    places = {queue: place for place, queue in enumerate(queues)}
    of_queues = [view for view in views if view.key.kind == "queue"]
    return sorted(of_queues, key=lambda view: places.get(view.key.queue or "", len(places)))
