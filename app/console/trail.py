"""The trail of a message: itself in every queue that has it, what was sent because of it, and what shares its trace."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.broker.browse import PageLimits, browse
from app.broker.queues import QueueWithCounts
from app.console.messages import after_cursor
from app.console.pages import CurrentPage, PageRequest
from app.domain.access import Right
from app.domain.message import MAX_ID_LENGTH, Envelope, Message, MessageMetadata, MessageState

PAGE_SIZE = 50
MAX_SECONDS = 2.0
"""How long one page searches. The next page goes on where it has stopped."""

PART = PageLimits(max_batches=5, max_seconds=0.5)
"""How much of one queue is read before the time is checked again."""

TRACE_ID = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?", re.ASCII)
"""A trace id, alone or within a `traceparent` (W3C Trace Context)."""

router = APIRouter(prefix="/console/trail")


@dataclass(frozen=True, slots=True)
class Step:
    """A message of a trail, and what it has to do with the id."""

    queue: str
    message: Message
    relation: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search goes on: a queue, and the sequence number after which to read it."""

    queue: str = ""
    after: int = 0


@router.get("")
async def show_trail(page: CurrentPage) -> HTMLResponse:
    """Show the messages that have to do with an id of a message or of a trace, in the order of their sending."""
    wanted = page.query("id")[:MAX_ID_LENGTH]
    start = Place(page.query("queue"), after_cursor(page.query("after")))
    steps, next_place = await _search(page, wanted, start) if wanted else ((), None)
    return page.render(
        "trail.html",
        wanted=wanted,
        steps=sorted(steps, key=lambda step: (step.message.enqueued_at, step.message.sequence_number)),
        next_place=next_place,
        is_first=start == Place(),
    )


@dataclass(frozen=True, slots=True)
class TrailFilter:
    """Selects the messages of a trail. `trace` is the id of a trace if `wanted` is, or has, one."""

    wanted: str
    trace: str | None

    async def select(self, messages: Sequence[MessageMetadata]) -> list[MessageMetadata]:
        """Return the messages that match, in the order given."""
        return [message for message in messages if self.relation(message.envelope) is not None]

    def relation(self, envelope: Envelope) -> str | None:
        """Return what a message has to do with the id, None if it has nothing."""
        if envelope.message_id == self.wanted:
            return "has this id"
        if envelope.message_id.startswith(self.wanted + "/"):
            return "was made from it"
        if envelope.correlation_id == self.wanted:
            return "names it as its correlation"
        is_of_trace = self.trace is not None and self.trace in (envelope.traceparent or "")
        return "shares the trace" if is_of_trace else None


def trail_filter(wanted: str) -> TrailFilter:
    """Return the filter for messages with this id, those that were made from it, their answers, and those of the trace."""
    trace = TRACE_ID.fullmatch(wanted)
    return TrailFilter(wanted, trace[1] if trace else None)


async def _search(page: PageRequest, wanted: str, start: Place) -> tuple[Sequence[Step], Place | None]:
    """Return a part of the trail, and where the search goes on, None at its end."""
    context, steps = page.context, list[Step]()
    await context.activity.refresh(context.statistics)
    ports = replace(context.broker.browsing, page_limits=PART)
    chosen, states = trail_filter(wanted), list(MessageState)
    end = context.broker.clock.monotonic() + MAX_SECONDS
    for listed in _browsable(page, start):
        name, after = listed.queue.name, start.after if listed.queue.name == start.queue else 0
        while True:
            found, more = await browse(ports, listed.queue, states, chosen, after, PAGE_SIZE - len(steps))
            steps += [Step(name, message, chosen.relation(message.envelope) or "") for message in found]
            after = more or 0
            if len(steps) >= PAGE_SIZE or context.broker.clock.monotonic() >= end:
                return steps, Place(name, after) if more else _next_queue(page, name)
            if not more:
                break
    return steps, None


def _browsable(page: PageRequest, start: Place) -> Iterator[QueueWithCounts]:
    """Yield the queues from the start that the visitor may browse and that hold messages, by name."""
    for listed in sorted(page.context.activity.queues, key=lambda one: one.queue.name):
        name = listed.queue.name
        if name >= start.queue and page.visitor.may(Right.BROWSE, name):
            yield listed


def _next_queue(page: PageRequest, name: str) -> Place | None:
    following = (listed.queue.name for listed in _browsable(page, Place(name)) if listed.queue.name > name)
    found = next(following, None)
    return None if found is None else Place(found)
