"""The messages of a queue: a list of those in any state, and the page of one message with its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.administration.archive import read_archived
from app.broker.administration.browse import browse, read_message, show_message
from app.broker.administration.explain import explain_one_message
from app.broker.administration.history import read_history
from app.broker.administration.queues import reload_queue
from app.broker.filtering.filters import CelFilter, MatchAll
from app.console.access import Context, needs
from app.console.bodies import body_view, preview
from app.console.context import ConsoleContext
from app.console.forms import decoded, faults_of
from app.console.pages import CurrentPage, PageRequest
from app.console.plan_digest import plan_digest
from app.console.sender_texts import shown_texts
from app.console.snippets import curl_browse, curl_send, page_url, python_send
from app.console.timeline import MAX_EVENTS, timeline
from app.console.typed_properties import typed_properties
from app.domain.access import Right
from app.domain.message import BodyKind, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest, MessageNotFound, invalid_at
from app.http.response import UNTRUSTED_BODY_HEADERS
from app.wire.explanations import message_explanation_view
from app.wire.field_types import MAX_INT64
from app.wire.messages import BrowseMessages
from app.wire.queues import parse_states

PAGE_SIZE = 50

STATES = ("available", "scheduled", "locked", "deferred", "blocked", "dead_lettered")
EXAMPLES = (
    ("message.subject == 'order.placed'", "a subject"),
    ("message.properties.region == 'eu'", "a property"),
    ("message.priority >= 7 && message.failure_count > 0", "urgent, and failed before"),
    ("message.message_id.startsWith('order-')", "the beginning of an id"),
    ("message.enqueued_at < timestamp('2030-01-01T00:00:00Z')", "sent before a time"),
    ("message.body_bytes > 65536", "a large body"),
)
"""Filters that people start from."""

router = APIRouter(prefix="/console/queues/{queue}/messages")
may_browse = Depends(needs(Right.BROWSE, "queue"))


@dataclass(frozen=True, slots=True)
class MessageList:
    """One page of a list, and the cursor of the next one; `faults` has what is wrong with the query by its fields."""

    messages: Sequence[Message]
    next_cursor: str | None
    faults: dict[str, str]


@router.get("", dependencies=[may_browse])
async def list_messages(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show messages in some states that match a filter, by sequence number."""
    found = await reload_queue(page.context.broker.administration, queue)
    states, expression, cursor = page.request.query_params.getlist("state"), page.query("filter"), page.query("cursor")
    listed = await list_page(page.context, found, {"state": states, "filter": expression, "cursor": cursor})
    query = [("state", state) for state in states] + ([("filter", expression)] if expression else [])
    return page.render(
        "messages.html",
        422 if listed.faults else 200,
        name=queue,
        tab="messages",
        rows=[(message, preview(message.body, message.body_kind)) for message in listed.messages],
        faults=listed.faults,
        states=STATES,
        chosen=states,
        expression=expression,
        examples=EXAMPLES,
        is_first=not cursor,
        first_page="?" + urlencode(query),
        next_page=listed.next_cursor and "?" + urlencode([*query, ("cursor", listed.next_cursor)]),
        curl=curl_browse(page_url(page.request), queue, states, expression, page.visitor.is_signed_in),
    )


@router.get("/{sequence_number}", dependencies=[may_browse])
async def show_one_message(page: CurrentPage, queue: str, sequence_number: str) -> HTMLResponse:
    """Show one message, also after it has ended as long as a record of its end is kept."""
    broker, number = page.context.broker, number_of(sequence_number)
    found = await reload_queue(broker.administration, queue)
    message = await _message_if_held(page.context, found, number)
    explained = await explain_one_message(broker.administration, found, number, page.visitor.principal.name)
    archived = None if message else await read_archived(broker.administration, found, number)
    after = after_cursor(page.query("events_after"))
    events, more = await read_history(broker.administration, found, number, after, MAX_EVENTS)
    return page.render(
        "message.html",
        name=queue,
        tab="messages",
        number=number,
        message=message,
        archived=archived,
        explanation=message_explanation_view(explained),
        body=message and body_view(message.body, message.body_kind, page.query("body")),
        shown_texts=shown_texts,
        properties=message and typed_properties(message.envelope.properties),
        redrive_plan=message and plan_digest("redrive", found, [message]),
        timeline=timeline(events),
        next_events=more,
        keeps_history=found.settings.history,
        snippets=message and _snippets(page, queue, message),
    )


@router.get("/{sequence_number}/body", dependencies=[may_browse])
async def download_body(context: Context, queue: str, sequence_number: str) -> Response:
    """Answer the bytes of a body as a file. The browser stores it and shows nothing of it."""
    found = await reload_queue(context.broker.administration, queue)
    message = await read_message(context.broker.administration, found, number_of(sequence_number))
    suffix = "json" if message.body_kind is BodyKind.JSON else "bin"
    headers = {name.decode(): value.decode() for name, value in UNTRUSTED_BODY_HEADERS}
    headers["content-disposition"] = f'attachment; filename="{found.name}-{message.sequence_number}.{suffix}"'
    headers["cache-control"] = "no-store"
    return Response(message.body, headers=headers, media_type="application/octet-stream")


def number_of(text: str) -> int:
    """Return the sequence number in a path. Refuses with `MessageNotFound` other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) <= MAX_INT64):
        raise MessageNotFound("A sequence number is a whole number from 1.")
    return int(text)


async def list_page(context: ConsoleContext, queue: Queue, fields: dict[str, object]) -> MessageList:
    """Return a page of the messages that the fields of the query ask for: `state`, `filter` and `cursor`."""
    try:
        query = decoded(BrowseMessages, fields)
        states = parse_states(query.state) or list(MessageState)
        chosen = MatchAll() if query.filter is None else CelFilter(query.filter)
        after = after_cursor(query.cursor)
    except InvalidRequest as refusal:
        return MessageList((), None, faults_of(refusal))
    messages, more = await browse(context.broker.administration, queue, states, chosen, after, PAGE_SIZE)
    return MessageList(messages, None if more is None else str(more), {})


def after_cursor(cursor: str | None) -> int:
    """Return the number after which a page begins. Refuses with `InvalidRequest` a text that is no cursor."""
    if not cursor:
        return 0
    try:
        return number_of(cursor)
    except MessageNotFound:
        raise invalid_at("/cursor", "This page does not exist. Begin with the first one.") from None


async def _message_if_held(context: ConsoleContext, queue: Queue, number: int) -> Message | None:
    try:
        return await show_message(context.broker.administration, queue, number)
    except MessageNotFound:
        return None


def _snippets(page: PageRequest, queue: str, message: Message) -> list[tuple[str, str, str]]:
    """Return the ids, labels and texts of what can be copied."""
    curl = curl_send(page_url(page.request), queue, message, page.visitor.is_signed_in)
    python = python_send(page_url(page.request), queue, message)
    snippets = (("curl", "curl", curl), ("python", "Python", python))
    return [(name, label, text) for name, label, text in snippets if text is not None]
