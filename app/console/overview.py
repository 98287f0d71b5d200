"""The overview: every queue with what it holds and what happens in it, first those that need attention."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.broker.queues import QueueWithCounts
from app.console.access import Context, CurrentVisitor, Visitor
from app.console.activity import SAMPLES, Activity
from app.console.pages import render
from app.domain.access import Right
from app.domain.attention import Attention, Concern, attention_of
from app.domain.instant import Duration

MAX_ROWS = 1000
"""Rows of a page; a filter by name finds the others."""

SPARK_POINTS = 30
"""Points of a sparkline: each is the sum of as many samples."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One row of the overview."""

    name: str
    status: str
    available: int
    locked: int
    scheduled: int
    deferred: int
    blocked: int
    dead_lettered: int
    uncommitted: int
    oldest: Duration | None
    rate_in: float
    rate_out: float
    rate_failed: float
    spark: tuple[int, ...]
    attention: Attention | None

    @property
    def concern(self) -> str:
        """The concern about the queue, empty if there is none."""
        return self.attention.concern.value if self.attention else ""


TOTALS = ("available", "locked", "scheduled", "dead_lettered", "rate_in", "rate_out", "rate_failed")
URGENCY = {concern.value: number for number, concern in enumerate(Concern)}
SORT_KEYS: dict[str, Callable[[QueueSummary], Any]] = {
    "attention": lambda row: (URGENCY.get(row.concern, len(URGENCY)), row.name),
    "name": lambda row: row.name,
    "in": lambda row: row.rate_in,
    "out": lambda row: row.rate_out,
    "failed": lambda row: row.rate_failed,
    "available": lambda row: row.available,
    "locked": lambda row: row.locked,
    "scheduled": lambda row: row.scheduled,
    "deferred": lambda row: row.deferred,
    "blocked": lambda row: row.blocked,
    "dead_lettered": lambda row: row.dead_lettered,
    "oldest": lambda row: row.oldest or 0,
}
"""How rows are sorted by each column. A `-` before its name reverses the order."""


@router.get("/console")
async def show_overview(
    request: Request, context: Context, visitor: CurrentVisitor, sort: str = "attention", find: str = ""
) -> HTMLResponse:
    """Show the queues that the visitor may browse."""
    if not context.activity.number:
        await context.activity.sample(context.statistics)
    rows = summaries(context.activity, visitor)
    found = sorted_rows([row for row in rows if find.lower() in row.name.lower()], sort)
    return render(
        request,
        context,
        visitor,
        "overview.html",
        rows=found[:MAX_ROWS],
        found=len(found),
        all_rows=rows,
        concerned=sum(row.attention is not None for row in rows),
        sort=sort,
        find=find,
        totals=totals(rows),
    )


def summaries(activity: Activity, visitor: Visitor) -> list[QueueSummary]:
    """Return the rows of the queues that the visitor may browse, by name."""
    listed = activity.snapshot.queues or ()
    return [summary(activity, one) for one in listed if visitor.may(Right.BROWSE, one.queue.name)]


def summary(activity: Activity, listed: QueueWithCounts) -> QueueSummary:
    """Return the row of one queue."""
    of_queue, counts = activity.of(listed.queue.id), listed.counts
    return QueueSummary(
        name=listed.queue.name,
        status=listed.queue.settings.status.value,
        available=counts.available,
        locked=counts.locked,
        scheduled=counts.scheduled,
        deferred=counts.deferred,
        blocked=counts.blocked,
        dead_lettered=counts.dead_lettered,
        uncommitted=counts.uncommitted,
        oldest=counts.oldest_available,
        rate_in=of_queue.rate("sent"),
        rate_out=of_queue.rate("completed"),
        rate_failed=of_queue.rate("failed"),
        spark=_spark(of_queue.series("sent")),
        attention=attention_of(listed.queue.settings.status, counts, of_queue.trend()),
    )


def sorted_rows(rows: list[QueueSummary], sort: str) -> list[QueueSummary]:
    """Return the rows in the order that the address names; an unknown one begins with those that need attention."""
    key = SORT_KEYS.get(sort.removeprefix("-"), SORT_KEYS["attention"])
    return sorted(rows, key=key, reverse=sort.startswith("-"))


def totals(rows: Iterable[QueueSummary]) -> dict[str, float]:
    """Return the sums of the rows."""
    sums: dict[str, float] = dict.fromkeys(TOTALS, 0.0)
    for row in rows:
        for name in sums:
            sums[name] += getattr(row, name)
    return sums


def _spark(series: Any) -> tuple[int, ...]:
    """Return the series in fewer points, the newest last, with zeros before its beginning."""
    step = SAMPLES // SPARK_POINTS
    padded = [0] * (SAMPLES - len(series)) + list(series)
    return tuple(sum(padded[start : start + step]) for start in range(0, SAMPLES, step))
