"""What changes while a page is open, as server-sent events: the first has every row, the others those that have changed."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from app.console.access import Context, CurrentOrKnownVisitor, SignInNeeded, Visitor, current_or_known_visitor
from app.console.activity import SAMPLE_SECONDS
from app.console.context import ConsoleContext
from app.console.formats import format_duration
from app.console.overview import MAX_ROWS, Wanted, WantedFigures, figures
from app.console.servers import scope_note, server_list
from app.domain.instant import SECOND
from app.domain.refusals import BackendUnavailable, Forbidden, RateLimited
from app.runtime.clock import Signal

MAX_VIEWERS = 100
"""Open views of a process. Each has a connection, and refers to the rows that it was sent."""

MAX_VIEWERS_OF_ONE = MAX_VIEWERS // 2
"""How many of them a principal may have, so that no key keeps out all others."""

CHECK_SECONDS = 2.0
"""How often a stream checks whether its visitor may stay. Together with the seconds for which a session stays cached, this is
less than the five seconds for which a revoked key may still work."""

MAX_CHECKS = int(2 * SAMPLE_SECONDS / CHECK_SECONDS)
"""Checks after which a stream sends an event without a new sample, which says how old the figures are."""

RETRY = b"retry: 2000\n\n"
"""A browser that has lost the stream asks for it again after two seconds."""

router = APIRouter()
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class View:
    """What one page shows: what its address asks for, and the texts that it was sent."""

    wanted: Wanted
    order: list[str] = field(default_factory=list[str])
    sent: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def update_rows(self, current: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[str]]:
        """Remember the rows. Return those that have changed, and the names of those that are gone."""
        changed = {name: cells for name, cells in current.items() if cells != self.sent.get(name)}
        gone = sorted(self.sent.keys() - current.keys())
        for name in gone:
            del self.sent[name]
        self.sent.update(changed)
        return changed, gone

    def update_order(self, current: list[str]) -> bool:
        """Remember the order. Return whether it has changed."""
        is_new = current != self.order
        self.order = current
        return is_new


async def open_view(context: Context, visitor: CurrentOrKnownVisitor) -> AsyncGenerator[Signal]:
    """Register a view until its response has ended. Refuses with `RateLimited` if too many are open."""
    activity, principal = context.activity, visitor.principal.name if visitor.is_signed_in else None
    is_one_too_many = principal is not None and activity.viewers_of(principal) >= MAX_VIEWERS_OF_ONE
    if is_one_too_many or activity.viewers >= MAX_VIEWERS:
        raise RateLimited("Too many pages of the console are open. Close one, or use another server.")
    with activity.viewer(context.broker.clock, principal) as signal:
        yield signal


@router.get("/console/live")
async def stream_rows(
    request: Request,
    context: Context,
    visitor: CurrentOrKnownVisitor,
    signal: Annotated[Signal, Depends(open_view)],
    wanted: WantedFigures,
) -> Response:
    """Stream the rows of the overview until the browser goes away, its session ends or the server stops.

    `wanted` is that of the page, which shows the rows in the order of the stream.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
    events = _events(request, context, visitor, signal, View(wanted))
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


async def _events(
    request: Request, context: ConsoleContext, visitor: Visitor, signal: Signal, view: View
) -> AsyncIterator[bytes]:
    yield RETRY
    while not context.activity.is_closed:
        number = context.activity.number
        yield _event(context, visitor, view)
        if not await _wait_for_sample(request, context, signal, number):
            return


async def _wait_for_sample(request: Request, context: ConsoleContext, signal: Signal, number: int) -> bool:
    """Wait for the sample after this one, through at most `MAX_CHECKS` checks. Return False once the visitor has gone or may
    not stay."""
    activity = context.activity
    for _ in range(MAX_CHECKS):
        await signal.wait(CHECK_SECONDS)
        if await request.is_disconnected() or not await _may_stay(request):
            return False
        if activity.is_closed or activity.number != number:
            break
    return True


async def _may_stay(request: Request) -> bool:
    """Return whether the visitor could open the view now: a session ends at the sign-out and with its key."""
    try:
        await current_or_known_visitor(request)
    except (SignInNeeded, Forbidden):
        return False
    except BackendUnavailable:
        # The view says that the database is away. It gets no newer rows until that is over.
        return True
    return True


def _event(context: ConsoleContext, visitor: Visitor, view: View) -> bytes:
    """Return the next event, and remember what it says in the view."""
    snapshot = context.activity.snapshot
    data: dict[str, Any] = {
        "at": context.broker.clock.now() // (SECOND // 1000),
        "store": "away" if snapshot.queues is None else "slow" if snapshot.is_slow else "ok",
        "lock_store": snapshot.lock_store,
        "scope": scope_note(context.activity),
        "servers": server_list(context.activity),
    }
    if snapshot.queues is None and context.activity.read_at is not None:
        data["age"] = format_duration(context.broker.clock.now() - context.activity.read_at)
    if snapshot.queues is not None:
        shown = figures(context, visitor, view.wanted)
        cells = {row.name: context.summaries.cells(row.name) for row in shown.rows}
        data["rows"], data["gone"] = view.update_rows(cells)
        data["found"], data["attention_count"] = shown.found_text, shown.attention_count
        if view.update_order([row.name for row in shown.found[:MAX_ROWS]]):
            data["order"] = view.order
        data["totals"], data["plots"] = shown.totals, shown.plots
    return b"event: rows\ndata: " + _encode(data) + b"\n\n"
