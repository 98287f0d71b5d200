"""The overview: every queue with what it holds and what happens in it, first those that need attention."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2.environment import TemplateModule

from app.console.access import Context, CurrentOrKnownVisitor, Visitor
from app.console.context import ConsoleContext
from app.console.formats import format_number, format_rate
from app.console.pages import render, templates
from app.console.servers import server_list
from app.console.snippets import curl_first_send, page_url
from app.console.spans import span_of
from app.console.summaries import QueueSummary
from app.console.total_plots import SPAN_LABELS, TotalPlots
from app.domain.access import Right
from app.domain.attention import AttentionCause
from app.domain.plurals import count_of
from app.domain.refusals import StoreUnavailable
from app.http.asgi import root_path

MAX_ROWS = 1000
"""Rows of a page; a filter by name finds the others."""

NOT_READ = "The database has not answered since this server process started."

ROWS_OF_A_PART = 25
"""Rows that are rendered at a time, in about three milliseconds. A browser lays out the parts that are in view."""

router = APIRouter()


TOTALS = ("available", "locked", "scheduled", "dead_lettered", "rate_in", "rate_out", "rate_failed")
URGENCY = {cause.value: number for number, cause in enumerate(AttentionCause)}
SORT_KEYS: dict[str, Callable[[QueueSummary], Any]] = {
    "attention": lambda row: (URGENCY.get(row.attention_cause, len(URGENCY)), row.name),
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the address of the overview asks for: an order, a text in the names of queues, and the span of the plots."""

    sort: str = "attention"
    find: str = ""
    span: str = ""


WantedFigures: TypeAlias = Annotated[Wanted, Depends()]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the overview says at one moment. Its rows, sums, sentences and plots come from one snapshot.

    `found` are the rows that the page asks for, in its order.
    """

    rows: Sequence[QueueSummary]
    found: Sequence[QueueSummary]
    found_text: str
    attention_count: str
    totals: Mapping[str, str]
    plots: TotalPlots


@router.get("/console")
async def show_overview(
    request: Request, context: Context, visitor: CurrentOrKnownVisitor, wanted: WantedFigures
) -> HTMLResponse:
    """Show the queues that the visitor may browse, while the database is away as they were last known."""
    await context.activity.refresh(context.statistics)
    if context.activity.read_at is None:
        raise StoreUnavailable(NOT_READ)
    # All figures are taken before the rows are rendered: other requests, and samples, come between the parts.
    shown = figures(context, visitor, wanted)
    servers, age = server_list(context.activity), context.broker.clock.now() - context.activity.read_at
    return render(
        request,
        context,
        visitor,
        "overview.html",
        parts=await rendered_parts(shown.found[:MAX_ROWS], root_path(request.scope)),
        shown=min(len(shown.found), MAX_ROWS),
        figures=shown,
        sort=wanted.sort,
        find=wanted.find,
        span=shown.plots.span,
        spans=SPAN_LABELS,
        servers=servers,
        age=age,
        curl=curl_first_send(page_url(request), visitor.is_signed_in),
    )


@router.get("/console/")
async def lead_to_overview(request: Request) -> RedirectResponse:
    """Lead from the address with a slash at its end to the overview."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/console{query}", 308)


def figures(context: ConsoleContext, visitor: Visitor, wanted: Wanted) -> Figures:
    """Return the figures of the newest snapshot for a page or an open view."""
    rows = browsable_rows(context, visitor)
    found = found_rows(rows, wanted.find, wanted.sort)
    return Figures(
        rows,
        found,
        format_found(len(found)),
        format_attention_count(rows),
        {
            name: format_rate(value) if name.startswith("rate") else format_number(value)
            for name, value in totals(rows).items()
        },
        context.plots.plots(visitor.principal.grant, span_of(wanted.span)),
    )


async def rendered_parts(rows: Sequence[QueueSummary], root: str) -> list[TemplateModule]:
    """Return the rows as they stand in the page, in parts. Other requests are served between two parts."""
    template, parts = templates.get_template("overview_rows.html"), list[TemplateModule]()
    for start in range(0, len(rows), ROWS_OF_A_PART):
        parts.append(template.make_module({"rows": rows[start : start + ROWS_OF_A_PART], "root": root}))
        await asyncio.sleep(0)
    return parts


def browsable_rows(context: ConsoleContext, visitor: Visitor) -> list[QueueSummary]:
    """Return the rows of the queues that the visitor may browse, by name."""
    return [row for row in context.summaries.rows() if visitor.may(Right.BROWSE, row.name)]


def found_rows(rows: Iterable[QueueSummary], find: str, sort: str) -> list[QueueSummary]:
    """Return the rows whose names contain a text, in this order. An unknown order puts those that need attention first."""
    key = SORT_KEYS.get(sort.removeprefix("-"), SORT_KEYS["attention"])
    wanted = find.lower()
    return sorted((row for row in rows if wanted in row.name.lower()), key=key, reverse=sort.startswith("-"))


def format_found(found: int) -> str:
    """Return how many queues a page has found."""
    return count_of(found, "queue")


def format_attention_count(rows: Iterable[QueueSummary]) -> str:
    """Return how many queues need attention, empty if none does."""
    count = sum(row.attention is not None for row in rows)
    return count_of(count, "needs attention", "need attention") if count else ""


def totals(rows: Iterable[QueueSummary]) -> dict[str, float]:
    """Return the sums of the rows."""
    sums: dict[str, float] = dict.fromkeys(TOTALS, 0.0)
    for row in rows:
        for name in sums:
            sums[name] += getattr(row, name)
    return sums
