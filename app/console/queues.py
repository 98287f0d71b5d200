"""The page of one queue: what it holds, what happens in it, why it stands still, its consumers, and who holds its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from app.broker.administration.browse import browse
from app.broker.administration.explain import explain_whole_queue
from app.broker.administration.history import count_by_minute
from app.broker.administration.queues import QueueWithCounts, change_queue, get_queue, reload_queue
from app.broker.filtering.filters import MatchAll
from app.console.access import Context, CurrentVisitor, Visitor, needs
from app.console.activity import SAMPLE_SECONDS, QueueActivity
from app.console.consumers import consumer_table, consumers_of, paused_among
from app.console.context import ConsoleContext
from app.console.form_fields import form_texts
from app.console.formats import format_duration, format_number
from app.console.groups import blocked_groups
from app.console.latency import Kind
from app.console.pages import render
from app.console.past import past_plot
from app.console.servers import scope_note
from app.console.summaries import summary
from app.domain.access import Right
from app.domain.consumer import ListedConsumer
from app.domain.delivery import wait_key_of
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.queue_explanation import QueueFacts
from app.domain.refusals import Conflict, invalid_at
from app.wire.explanations import queue_explanation_view
from app.wire.queues import queue_status

MAX_LOCKED = 20
"""Locked messages on the page. Their own page has the others."""

EVENT_PLOT = (("sent", "Sent"), ("delivered", "Delivered"), ("completed", "Completed"), ("failed", "Failed"))
LATENCY_PLOT: Sequence[tuple[Kind, str]] = (("waiting", "Waiting for a receiver"), ("processing", "With a receiver"))
DEPTH_PLOT = (("waiting", "Waiting"), ("dead", "Dead-lettered"))

COUNT_LABELS = (
    ("available", "Available"),
    ("locked", "Locked"),
    ("scheduled", "Scheduled"),
    ("deferred", "Deferred"),
    ("blocked", "Blocked"),
    ("dead_lettered", "Dead-lettered"),
    ("uncommitted", "Uncommitted"),
    ("oldest", "Oldest"),
)
"""The figures at the top of the page."""

StatusFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts("seen", "status"))]

router = APIRouter(prefix="/console/queues/{queue}")
may_browse, may_manage = Depends(needs(Right.BROWSE, "queue")), Depends(needs(Right.MANAGE, "queue"))


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures and sentences of the page, all from one read of the counts. Empty texts are not shown."""

    counts: Mapping[str, str]
    attention: str
    explanation: str


@router.get("", dependencies=[may_browse])
async def show_queue(request: Request, context: Context, visitor: CurrentVisitor, queue: str) -> HTMLResponse:
    """Show one queue."""
    listed = await get_queue(context.broker.administration, queue)
    past = await _past(context, listed.queue) if listed.queue.settings.history else None
    waiting = context.broker.receiving.wait_queue
    # The counts are read after these messages, and again while the page is open. So the page says when it has read them.
    locked_at = await context.broker.store.now()
    locked, _ = await browse(
        context.broker.administration, listed.queue, [MessageState.LOCKED], MatchAll(), 0, MAX_LOCKED
    )
    consumers = await consumers_of(context.broker.consumers, listed.queue.id)
    shown, explained = await _figures(context, listed.queue, visitor, paused_among(consumers))
    return render(
        request,
        context,
        visitor,
        "queue.html",
        name=queue,
        tab="overview",
        figures=shown,
        count_labels=COUNT_LABELS,
        view=queue_status(listed.queue, explained.counts),
        consumers=consumer_table(consumers),
        locked=locked,
        locked_at=locked_at,
        max_locked=MAX_LOCKED,
        receivers_waiting=waiting.waiter_count(wait_key_of(listed.queue.id, MessageState.AVAILABLE)),
        groups=await blocked_groups(context, listed.queue, visitor.principal.name) if explained.counts.blocked else (),
        plots=_plots(context, listed.queue.id) | (past or {}),
        has_past=past is not None,
    )


@router.get("/plots", dependencies=[may_browse])
async def read_plots(context: Context, visitor: CurrentVisitor, queue: str) -> dict[str, Any]:
    """Answer the points of the plots, and the figures and sentences above them, for a page that is open."""
    found = await reload_queue(context.broker.administration, queue)
    consumers = await consumers_of(context.broker.consumers, found.id)
    shown, _ = await _figures(context, found, visitor, paused_among(consumers))
    texts = {
        "scope": scope_note(context.activity),
        "figures": asdict(shown),
        "consumers": asdict(consumer_table(consumers)),
    }
    return _plots(context, found.id) | texts


@router.post("/status", dependencies=[may_manage])
async def change_status(context: Context, queue: str, fields: StatusFields) -> RedirectResponse:
    """Pause or resume sends and receives, if the status is still as the page has shown it."""
    seen, status = _status(fields, "seen"), _status(fields, "status")

    def change(settings: QueueSettings) -> QueueSettings:
        if settings.status not in (seen, status):
            raise Conflict("The status of this queue has changed since the page was loaded. Load it again.")
        return replace(settings, status=status)

    await change_queue(context.broker.administration, await reload_queue(context.broker.administration, queue), change)
    return RedirectResponse(f"/console/queues/{queue}", 303)


async def _figures(
    context: ConsoleContext, queue: Queue, visitor: Visitor, paused: Sequence[ListedConsumer]
) -> tuple[QueueFigures, QueueFacts]:
    """Return what the page says about a queue and its paused consumers, and the facts from which all of it follows."""
    explained = await explain_whole_queue(context.broker.administration, queue, visitor.principal.name)
    counts = explained.facts.counts
    row = summary(context.activity, QueueWithCounts(queue, counts), paused)
    numbers = {name: format_number(getattr(counts, name)) for name, _ in COUNT_LABELS if name != "oldest"}
    shown = QueueFigures(
        {**numbers, "oldest": format_duration(row.oldest)},
        row.attention.reason if row.attention else "",
        queue_explanation_view(explained).text,
    )
    return shown, explained.facts


def _status(fields: Mapping[str, str], name: str) -> QueueStatus:
    """Return the status in a field of a form. Refuses with `InvalidRequest`."""
    try:
        return QueueStatus(fields.get(name, ""))
    except ValueError:
        raise invalid_at(f"/{name}", "This is not a status of a queue.") from None


def _plots(context: ConsoleContext, queue_id: int) -> dict[str, Any]:
    """Return the points of the plots: events per second, messages, and average seconds."""
    activity = context.activity.of(queue_id)
    points = len(activity.series("waiting"))
    end = context.broker.clock.now() / SECOND
    return {
        "times": [round(end - (points - 1 - index) * SAMPLE_SECONDS, 1) for index in range(points)],
        "events": {label: _a_second(activity, name) for name, label in EVENT_PLOT},
        "depth": {label: list(activity.series(name)) for name, label in DEPTH_PLOT},
        "seconds": {label: activity.seconds(kind) for kind, label in LATENCY_PLOT},
    }


async def _past(context: ConsoleContext, queue: Queue) -> dict[str, Any] | None:
    counts = await count_by_minute(context.broker.administration, queue)
    return past_plot(counts, await context.broker.store.now())


def _a_second(activity: QueueActivity, name: str) -> list[float]:
    return [round(count / SAMPLE_SECONDS, 3) for count in activity.series(name)]
