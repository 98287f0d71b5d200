"""Messages over HTTP, for whoever looks after a queue: browsed, looked at, changed, cancelled, redriven."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from app.api.bodies import Headers
from app.api.desk import Call, in_path, wrong_cursor
from app.api.guard import allow
from app.api.operation import JSON, MERGE_PATCH, OCTETS, Reply, operation
from app.api.queues import matching
from app.broker.browse import browse, look
from app.broker.edit import cancel, edit
from app.broker.ports import Edit
from app.broker.purge import Choice, redrive
from app.domain.access import Right
from app.domain.instant import Duration, Instant, from_seconds
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Fault, QueueNotFound
from app.wire.messages import BrowseMessages, EditMessage, MessagePage, MessageView, view
from app.wire.properties import property_bytes, read_properties
from app.wire.queues import RedriveDeadLetters, Redriven, states
from app.wire.shapes import LARGEST_INT64, PropertyValue
from app.wire.values import at, due_time

MESSAGES = "/v1/queues/{queue}/messages"
MESSAGE = MESSAGES + "/{sequence_number}"

AS_A_FILE: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)
"""A body is whatever its sender chose: no browser is to run it as a page of this server."""

_decode_properties = msgspec.json.Decoder(dict[str, PropertyValue]).decode


@operation(
    "GET", MESSAGES, right=Right.BROWSE, tag="messages",
    answers={200: MessagePage}, refusals=(404, 422), query=BrowseMessages,
)  # fmt: skip
async def browse_messages(call: Call[None]) -> Reply:
    """Look at messages in any state, by sequence number, without locking, counting or changing anything."""
    asked: BrowseMessages = call.query
    queue = await call.queue()
    after = _number(asked.cursor) if asked.cursor is not None else 0
    if after is None:
        raise wrong_cursor()
    chosen = states(asked.state) or list(MessageState)
    found, more = await browse(call.broker, queue, chosen, matching(asked.filter, "#/query/filter"), after, asked.limit)
    return Reply(MessagePage([view(message) for message in found], None if more is None else str(more)))


@operation(
    "GET", MESSAGE, right=Right.BROWSE, tag="messages", answers={200: MessageView}, refusals=(404, 422), tagged=(200,),
)  # fmt: skip
async def get_message(call: Call[None]) -> Reply:
    """Look at one message in whatever state."""
    message = await _look(call)
    return Reply(view(message), headers=_tagged(message))


@operation(
    "GET", MESSAGE + "/body", right=Right.BROWSE, tag="messages",
    answers={200: bytes}, refusals=(404, 422), gives=OCTETS,
)  # fmt: skip
async def get_message_body(call: Call[None]) -> Reply:
    """Get the body of a message, byte for byte as it was sent, with its content type."""
    message = await _look(call)
    given = message.envelope.content_type
    content_type = given.encode() if given else JSON if message.body_kind is BodyKind.JSON else OCTETS
    return Reply(content=message.body, content_type=content_type, headers=AS_A_FILE)


@operation(
    "PATCH", MESSAGE, right=Right.MANAGE, tag="messages",
    body=EditMessage, answers={200: MessageView}, refusals=(404, 409, 412, 422), headers=("If-Match",), tagged=(200,),
    accepts=MERGE_PATCH, example={"priority": 9, "delay_seconds": 0},
)  # fmt: skip
async def edit_message(call: Call[EditMessage]) -> Reply:
    """Change the due time, the priority or properties of a message that nobody holds, by a merge patch (RFC 7396)."""
    queue = await call.queue()
    given = call.body.properties
    properties = UNSET if given is UNSET else read_properties(given)
    change = partial(_edit, body=call.body, properties=properties)
    edited = await edit(call.broker, queue, _sequence_number(call), change, call.if_match())
    return Reply(view(edited), headers=_tagged(edited))


@operation(
    "DELETE", MESSAGE, right=Right.MANAGE, tag="messages",
    answers={204: None}, refusals=(404, 409, 412, 422), headers=("If-Match",),
)  # fmt: skip
async def cancel_message(call: Call[None]) -> Reply:
    """Take a message that nobody holds out of its queue, into the archive as cancelled."""
    queue = await call.queue()
    await cancel(call.broker, queue, _sequence_number(call), call.if_match())
    return Reply(status=204)


@operation(
    "POST", "/v1/queues/{queue}/dead-letter/redrive", right=Right.MANAGE, tag="messages",
    body=RedriveDeadLetters, answers={200: Redriven}, refusals=(404, 422, 507),
    example={"filter": "message.dead_letter_reason == 'bad_address'", "rate_per_second": 50},
)  # fmt: skip
async def redrive_dead_letters(call: Call[RedriveDeadLetters]) -> Reply:
    """Send dead-lettered messages back to their queue, or to another one, with their counts anew.

    Another queue needs the right to send to it, and takes as many as its `max_messages` leaves room for: where that is
    none, this is refused as a send would be. What is larger than its `max_message_bytes` stays where it is. Messages
    sent after the call began stay, and one that is changed while the call looks at it may still be moved. Once something
    is moved, the answer comes no later than a long poll's, so a large or slow redrive takes several calls: repeat it
    until nothing is moved any more.
    """
    queue = to_queue = await call.queue()
    body = call.body
    if body.to_queue is not None and body.to_queue != queue.name:
        allow(call.principal, Right.SEND, body.to_queue)
        to_queue = await _named(call, body.to_queue)
    choice = Choice([MessageState.DEAD_LETTERED], matching(body.filter), body.limit)
    patience = call.desk.longest_wait_seconds
    return Reply(Redriven(await redrive(call.broker, queue, to_queue, choice, body.rate_per_second, patience)))


async def _named(call: Call[RedriveDeadLetters], name: str) -> Queue:
    """The queue that the body names; the caller hears which of the two is missing."""
    try:
        return await call.broker.catalogue.named(name)
    except QueueNotFound as missing:
        raise QueueNotFound(faults=[Fault("/to_queue", missing.detail)]) from None


async def _look(call: Call[None]) -> Message:
    return await look(call.broker, await call.queue(), _sequence_number(call))


def _edit(seen: Message, body: EditMessage, properties: Mapping[str, PropertyValue] | UnsetType | None) -> Edit:
    available_at, delay = _due(body)
    return Edit(
        seen=seen,
        available_at=available_at,
        delay=delay,
        priority=None if body.priority is UNSET else body.priority if body.priority is not None else DEFAULT_PRIORITY,
        properties=_properties(seen.envelope.properties, properties),
    )


def _due(body: EditMessage) -> tuple[Instant | None, Duration | None]:
    """The new due time, as an instant or a delay; null stands for no delay at all."""
    moment, seconds = body.available_at, body.delay_seconds
    if moment is not UNSET and seconds is not UNSET:
        raise at("/delay_seconds", "Give available_at or delay_seconds, not both.")
    if isinstance(moment, datetime):
        return due_time(moment, "/available_at"), None
    if isinstance(seconds, float):
        return None, from_seconds(seconds)
    return None, None if moment is UNSET and seconds is UNSET else 0


def _properties(before: bytes, changes: Mapping[str, PropertyValue] | UnsetType | None) -> bytes | None:
    """The properties with the changes merged in; None leaves them as they are."""
    if changes is UNSET:
        return None
    if changes is None:
        return b""
    merged = {**(_decode_properties(before) if before else {}), **changes}
    kept = {name: value for name, value in merged.items() if value is not None or name not in changes}
    return property_bytes(kept, "/properties")


def _sequence_number(call: Call[None] | Call[EditMessage]) -> int:
    number = _number(call.path["sequence_number"])
    if not number:
        raise in_path("sequence_number", "A sequence number is a whole number from 1.")
    return number


def _number(text: str) -> int | None:
    """The number of decimal digits, None where there are others or too many."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= LARGEST_INT64 else None


def _tagged(message: Message) -> Headers:
    return ((b"etag", b'"%s"' % message.edition.encode()),)
