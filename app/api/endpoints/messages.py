"""The administration of messages over HTTP: browse, read, edit, cancel and redrive."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from app.broker.administration.browse import browse, read_message, show_message
from app.broker.administration.edit import cancel, edit
from app.broker.administration.history import read_history
from app.broker.administration.plan import plan_redrive, plan_restore
from app.broker.administration.redrive import redrive
from app.broker.administration.restore import restore
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import parse_filter
from app.broker.ports.maintaining import Edit
from app.domain.access import Right
from app.domain.instant import Duration, Instant, from_seconds
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import (
    Conflict,
    FieldError,
    MessageLocked,
    MessageNotFound,
    QueueFull,
    QueueNotFound,
    SendDisabled,
    SynchronousMessage,
    invalid_at,
)
from app.http.asgi import Headers
from app.http.authorize import authorize
from app.http.operation import EmptyBody, operation
from app.http.request import Request, invalid_cursor, invalid_path
from app.http.response import JSON, MERGE_PATCH, OCTET_STREAM, UNTRUSTED_BODY_HEADERS, Response
from app.wire.field_types import MAX_INT64, Page, PropertyValue
from app.wire.history import MAX_HISTORY_PAGE_BYTES, HistoryPage, history_page
from app.wire.message_fields import MessageView, message_view
from app.wire.messages import BrowseMessages, EditMessage, MessagePage, browsed_view
from app.wire.plans import plan_fields
from app.wire.properties import decode_properties, encode_properties, properties_of
from app.wire.queues import RedriveDeadLetters, RedrivenMessages, RestoredMessages, RestoreMessages, parse_states
from app.wire.times import from_wire
from app.wire.values import due_time

MESSAGES = "/v1/queues/{queue}/messages"
MESSAGE = MESSAGES + "/{sequence_number}"


@operation(
    "GET", MESSAGES, right=Right.BROWSE, tag="messages",
    responses={200: MessagePage}, refusals=(QueueNotFound,), query=BrowseMessages,
)  # fmt: skip
async def browse_messages(request: Request[None]) -> Response:
    """List messages in any state by sequence number. They are not locked, counted as delivered or changed."""
    query: BrowseMessages = request.query
    queue = await request.queue()
    after = cursor_of(query)
    chosen = parse_states(query.state) or list(MessageState)
    found, more = await browse(
        request.broker.administration, queue, chosen, parse_filter(query.filter, "#/query/filter"), after, query.limit
    )
    return Response(MessagePage([browsed_view(message) for message in found], None if more is None else str(more)))


@operation(
    "GET", MESSAGE, right=Right.BROWSE, tag="messages",
    responses={200: MessageView, 304: None}, refusals=(QueueNotFound, MessageNotFound), headers=("If-None-Match",), etag_statuses=(200, 304),
)  # fmt: skip
async def get_message(request: Request[None]) -> Response:
    """Get one message in any state. A locked one has the name of its receiver, if that gave one, and the end of its lock."""
    message = await show_message(request.broker.administration, await request.queue(), sequence_number_of(request))
    return Response(browsed_view(message), headers=_etag_header(message))


@operation(
    "GET", MESSAGE + "/body", right=Right.BROWSE, tag="messages",
    responses={200: bytes, 304: None}, refusals=(QueueNotFound, MessageNotFound), headers=("If-None-Match",), etag_statuses=(200, 304),
    response_media_type=OCTET_STREAM,
)  # fmt: skip
async def get_message_body(request: Request[None]) -> Response:
    """Get the body of a message, byte for byte as it was sent, with its content type. It never changes."""
    message = await _read_message(request)
    return body_response(message, ((b"etag", b'"%d"' % message.sequence_number),))


@operation(
    "PATCH", MESSAGE, right=Right.MANAGE, tag="messages",
    body=EditMessage, responses={200: MessageView}, refusals=(QueueNotFound, MessageNotFound, Conflict, MessageLocked, SynchronousMessage), headers=("If-Match",), etag_statuses=(200,),
    request_media_type=MERGE_PATCH, example={"priority": 9, "delay_seconds": 0},
)  # fmt: skip
async def edit_message(request: Request[EditMessage]) -> Response:
    """Change the due time, the priority or properties of a message that is not locked, by a merge patch (RFC 7396)."""
    queue = await request.queue()
    patch = request.body.properties
    properties = UNSET if patch is UNSET else decode_properties(patch)
    change = partial(_edit, body=request.body, properties=properties)
    edited = await edit(request.broker.administration, queue, sequence_number_of(request), change, request.if_match())
    return Response(message_view(edited), headers=_etag_header(edited))


@operation(
    "DELETE", MESSAGE, right=Right.MANAGE, tag="messages",
    responses={204: None}, refusals=(QueueNotFound, MessageNotFound, MessageLocked, SynchronousMessage), headers=("If-Match",),
)  # fmt: skip
async def cancel_message(request: Request[None]) -> Response:
    """Move a message that is not locked from its queue to the archive as cancelled."""
    queue = await request.queue()
    await cancel(request.broker.administration, queue, sequence_number_of(request), request.if_match())
    return Response(status=204)


@operation(
    "POST", "/v1/queues/{queue}/dead-letter/redrive", right=Right.MANAGE, tag="messages",
    body=RedriveDeadLetters, empty_body=EmptyBody.USUAL, responses={200: RedrivenMessages}, refusals=(QueueNotFound, SendDisabled, QueueFull),
    example={"filter": "message.dead_letter_reason == 'bad_address'", "rate_per_second": 50},
)  # fmt: skip
async def redrive_dead_letters(request: Request[RedriveDeadLetters]) -> Response:
    """Move dead-lettered messages back to their queue, or to another one, and reset their counts.

    Another queue needs the right to send to it. It accepts messages until it has `max_messages`; if it is full at the
    start, the request is refused as a send would be. Messages larger than its `max_message_bytes` stay. Messages sent
    after the request began stay. A message that is changed while the request reads it may still be moved. Once a message
    was moved, the answer takes no longer than that of a long poll, so a large or slow redrive takes several requests:
    repeat it until it moves nothing. With `dry_run`, all messages stay, and the answer has the number that this request
    and its repeats would move.
    """
    queue = to_queue = await request.queue()
    body = request.body
    if body.to_queue is not None and body.to_queue != queue.name:
        authorize(request.principal, Right.SEND, body.to_queue)
        to_queue = await target_queue(request, body.to_queue)
    selection = MessageSelection([MessageState.DEAD_LETTERED], parse_filter(body.filter), body.limit)
    time_limit_seconds = request.context.long_poll_cap_seconds
    how = (queue, to_queue, selection, body.rate_per_second, time_limit_seconds)
    if body.dry_run:
        return Response(
            RedrivenMessages(moved=0, **plan_fields(await plan_redrive(request.broker.administration, *how)))
        )
    return Response(RedrivenMessages(moved=await redrive(request.broker.administration, *how)))


@operation(
    "POST", "/v1/queues/{queue}/restore", right=Right.MANAGE, tag="messages",
    body=RestoreMessages, empty_body=EmptyBody.USUAL, responses={200: RestoredMessages}, refusals=(QueueNotFound, SendDisabled, QueueFull),
    example={"since": "2026-11-22T12:00:00Z", "filter": "message.subject == 'invoice'"},
)  # fmt: skip
async def restore_messages(request: Request[RestoreMessages]) -> Response:
    """Bring purged and cancelled messages of this queue's name back from the archive, each once.

    A restored message is a new one: it has a new sequence number, and is due now. It has the content, the
    properties, the priority and the message id of the old one, and counts of 0. Duplicate detection ignores it. Its
    time to live begins again, unless it had ended before the message was removed: then the message does not expire. The
    archive keeps the old message.

    The queue accepts messages until it has `max_messages`; if it is full at the start, the request is refused as a send
    would be. Messages larger than its `max_message_bytes` stay in the archive. A filter reads the archived messages;
    their `state` is `available`. Once a message was restored, the answer takes no longer than that of a long poll, so a
    large restore takes several requests: repeat it until it restores nothing. With `dry_run`, nothing is restored, and
    the answer has the number that this request and its repeats would restore.
    """
    queue = await request.queue()
    body = request.body
    selection = MessageSelection(
        (), parse_filter(body.filter), body.limit, max_message_bytes=queue.settings.max_message_bytes
    )
    how = (queue, selection, from_wire(body.since) if body.since else 0, request.context.long_poll_cap_seconds)
    if body.dry_run:
        return Response(
            RestoredMessages(restored=0, **plan_fields(await plan_restore(request.broker.administration, *how)))
        )
    return Response(RestoredMessages(restored=await restore(request.broker.administration, *how)))


def body_response(message: Message, headers: Headers) -> Response:
    """Return the answer whose body is that of a message, with its content type."""
    chosen = message.envelope.headers.content_type
    content_type = chosen.encode() if chosen else JSON if message.body_kind is BodyKind.JSON else OCTET_STREAM
    return Response(content=message.body, content_type=content_type, headers=(*UNTRUSTED_BODY_HEADERS, *headers))


@operation(
    "GET", MESSAGE + "/history", right=Right.BROWSE, tag="messages",
    responses={200: HistoryPage}, refusals=(QueueNotFound, MessageNotFound), query=Page, answer_bytes=MAX_HISTORY_PAGE_BYTES,
)  # fmt: skip
async def read_message_history(request: Request[None]) -> Response:
    """List what happened to a message, in order, also after it has ended. Nothing is locked, counted or changed.

    Only a queue with the setting `history` records events. A message that was redriven to another queue has its history
    there. Events are kept for `archive_retention_seconds` after the last one, at least for an hour, and as long as the
    message is in a queue. A message without recorded events has an empty list.
    """
    query: Page = request.query
    found, more = await read_history(
        request.broker.administration,
        await request.queue(),
        sequence_number_of(request),
        cursor_of(query),
        query.limit,
    )
    return Response(history_page(found, more))


async def target_queue(request: Request[Any], name: str) -> Queue:
    """Return the target queue. The refusal points at `to_queue`, so that a client knows which queue is missing."""
    try:
        return await request.broker.queue_cache.by_name(name)
    except QueueNotFound as missing:
        raise QueueNotFound(field_errors=[FieldError("/to_queue", missing.detail)]) from None


async def _read_message(request: Request[None]) -> Message:
    return await read_message(request.broker.administration, await request.queue(), sequence_number_of(request))


def _edit(seen: Message, body: EditMessage, properties: Mapping[str, PropertyValue] | UnsetType | None) -> Edit:
    available_at, delay = _new_available_at(body)
    return Edit(
        expected=seen,
        available_at=available_at,
        delay=delay,
        priority=None if body.priority is UNSET else body.priority if body.priority is not None else DEFAULT_PRIORITY,
        properties=_merged_properties(seen.envelope.properties, properties),
    )


def _new_available_at(body: EditMessage) -> tuple[Instant | None, Duration | None]:
    """Return the new due time as an instant or as a delay. Null means no delay."""
    moment, seconds = body.available_at, body.delay_seconds
    if moment is not UNSET and seconds is not UNSET:
        raise invalid_at("/delay_seconds", "Give available_at or delay_seconds, not both.")
    if isinstance(moment, datetime):
        return due_time(moment, "/available_at"), None
    if isinstance(seconds, float):
        return None, from_seconds(seconds)
    return None, None if moment is UNSET and seconds is UNSET else 0


def _merged_properties(before: bytes, changes: Mapping[str, PropertyValue] | UnsetType | None) -> bytes | None:
    """Return the merged properties, None for no change."""
    if changes is UNSET:
        return None
    if changes is None:
        return b""
    merged = {**properties_of(before), **changes}
    merged_properties = {name: value for name, value in merged.items() if value is not None or name not in changes}
    return encode_properties(merged_properties, "/properties")


def sequence_number_of(request: Request[None] | Request[EditMessage]) -> int:
    """Return the sequence number in the path. Refuses with `InvalidRequest`."""
    number = _parse_number(request.path["sequence_number"])
    if not number:
        raise invalid_path("sequence_number", "A sequence number is a whole number from 1.")
    return number


def cursor_of(page: Page) -> int:
    """Return the number after which a page begins. Refuses with `InvalidRequest`."""
    after = _parse_number(page.cursor) if page.cursor is not None else 0
    if after is None:
        raise invalid_cursor()
    return after


def _parse_number(text: str) -> int | None:
    """Return the number, None for a text that is not a decimal number of 64 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= MAX_INT64 else None


def _etag_header(message: Message) -> Headers:
    return ((b"etag", b'"%s"' % message.etag.encode()),)
