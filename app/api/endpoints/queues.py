"""Queues over HTTP: create, read, change, purge and delete them."""

from functools import partial
from typing import Any

import msgspec

from app.broker.administration import queues as verbs
from app.broker.administration.plan import plan_selection
from app.broker.administration.purge import purge
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll, parse_filter
from app.broker.precondition import Precondition
from app.domain.access import Right
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, QueueIsTarget, QueueNotFound, TooManyQueues
from app.http.asgi import Headers
from app.http.authorize import authorize
from app.http.operation import EmptyBody, operation
from app.http.request import Request, name_cursor
from app.http.response import MERGE_PATCH, Response, location
from app.wire.decode_errors import invalid_request
from app.wire.field_types import Page
from app.wire.plans import PlanView, plan_fields
from app.wire.queue_patch import QueuePatch, apply_patch
from app.wire.queues import (
    MAX_QUEUE_BYTES,
    ChangeQueue,
    DeleteQueue,
    PurgedMessages,
    PurgeQueue,
    QueuePage,
    QueueSettingsBody,
    QueueStatusView,
    QueueView,
    parse_states,
    queue_status,
    queue_view,
)

QUEUE = "/v1/queues/{queue}"
UNLOCKED = [state for state in MessageState if state is not MessageState.LOCKED]


@operation(
    "PUT", QUEUE, right=Right.MANAGE, tag="queues",
    body=QueueSettingsBody, responses={200: QueueView, 201: QueueView}, has_location=True, refusals=(TooManyQueues, ForwardingCycle, ForwardingTooLong),
    query=ChangeQueue, headers=("If-Match", "If-None-Match"), etag_statuses=(200, 201),
    example={"lock_duration_seconds": 60, "retry": {"kind": "exponential", "first_seconds": 1, "jitter": 0.2}},
)  # fmt: skip
async def put_queue(request: Request[QueueSettingsBody]) -> Response:
    """Create a queue, or replace its settings with these.

    Settings that are left out have their defaults. Equal settings change nothing. A change of the lock duration,
    the delivery limit, the status or the redelivery revokes the locks of receivers, unless `keep_locks` is true. A
    queue to `forward_to`, or to `forward_dead_letters_to`, needs the right to send to it.
    """
    name = request.path["queue"]
    _authorize_forwarding(request, request.body)
    condition = Precondition(request.if_match(), request.if_none_match() or ())
    query: ChangeQueue = request.query
    settings, ports = request.body.settings(), request.broker.administration
    queue, is_created = await verbs.put_queue(ports, name, settings, condition, query.locks)
    headers = (*_etag_header(queue), *location(f"/v1/queues/{name}")) if is_created else _etag_header(queue)
    return Response(queue_view(queue), 201 if is_created else 200, headers=headers)


@operation(
    "GET", "/v1/queues", right=Right.BROWSE, tag="queues", responses={200: QueuePage}, query=Page,
    lists_own=True,
)  # fmt: skip
async def list_queues(request: Request[None]) -> Response:
    """List the queues by name, each with its settings and counts.

    A key whose patterns are names, or prefixes such as `orders.*`, lists the queues that it may browse.
    """
    page: Page = request.query
    ranges = request.principal.grant.ranges(Right.BROWSE)
    after = name_cursor(page, ranges)
    async with request.reserve_page(page.limit, MAX_QUEUE_BYTES):
        items, more = await verbs.list_own_queues(request.broker.store.queues, ranges, after, page.limit)
        return Response(QueuePage([queue_status(item.queue, item.counts) for item in items], more))


@operation(
    "GET", QUEUE, right=Right.BROWSE, tag="queues", responses={200: QueueStatusView}, refusals=(QueueNotFound,), etag_statuses=(200,),
)  # fmt: skip
async def get_queue(request: Request[None]) -> Response:
    """Get a queue: its settings, its status, and the number of messages in each state."""
    listed = await verbs.get_queue(request.broker.administration, request.path["queue"])
    return Response(queue_status(listed.queue, listed.counts), headers=_etag_header(listed.queue))


@operation(
    "PATCH", QUEUE, right=Right.MANAGE, tag="queues",
    body=QueuePatch, responses={200: QueueView}, refusals=(QueueNotFound, ForwardingCycle, ForwardingTooLong),
    query=ChangeQueue, headers=("If-Match",), etag_statuses=(200,),
    request_media_type=MERGE_PATCH, example={"max_delivery_count": 5, "default_ttl_seconds": None},
)  # fmt: skip
async def patch_queue(request: Request[QueuePatch]) -> Response:
    """Change some settings of a queue, by a merge patch (RFC 7396). Null restores a default.

    As with PUT, some changes revoke the locks of receivers, unless `keep_locks` is true.
    """
    query: ChangeQueue = request.query
    _authorize_forwarding(request, request.body)
    ports, condition = request.broker.administration, Precondition(request.if_match())
    queue = await verbs.reload_queue(ports, request.path["queue"])
    change = partial(_apply_patch, patch=request.body)
    changed = await verbs.change_queue(ports, queue, change, condition, query.locks)
    return Response(queue_view(changed), headers=_etag_header(changed))


@operation(
    "DELETE", QUEUE, right=Right.MANAGE, tag="queues",
    responses={200: PlanView, 204: None}, refusals=(QueueNotFound, QueueIsTarget), query=DeleteQueue, headers=("If-Match",),
)  # fmt: skip
async def delete_queue(request: Request[None]) -> Response:
    """Delete a queue.

    A background pass moves its messages to the archive as `purged`, unless the queue keeps no archive. The target queue
    of a subscription is refused. With `dry_run`, the queue stays, and the answer has the number of its messages.
    """
    query: DeleteQueue = request.query
    queue = await verbs.reload_queue(request.broker.administration, request.path["queue"])
    precondition = Precondition(request.if_match())
    if query.dry_run:
        await verbs.check_deletable(request.broker.administration, queue, precondition)
        return Response(PlanView(**await _plan(request, queue, MessageSelection(list(MessageState), MatchAll()))))
    await verbs.delete_queue(request.broker.administration, queue, precondition)
    return Response(status=204)


@operation(
    "POST", QUEUE + "/purge", right=Right.MANAGE, tag="queues",
    body=PurgeQueue, empty_body=EmptyBody.USUAL, responses={200: PurgedMessages}, refusals=(QueueNotFound,),
    example={"states": ["dead_lettered"], "filter": "message.failure_count > 3"},
)  # fmt: skip
async def purge_queue(request: Request[PurgeQueue]) -> Response:
    """Move messages of a queue to its archive.

    Locked messages stay unless `locked` is among the states. Messages sent after the request began stay. A message that
    is changed while the request reads it may still be removed. Once a message was removed, the answer takes no longer
    than that of a long poll, so a large purge takes several requests: repeat it until it removes nothing.
    With `dry_run`, all messages stay, and the answer has the number that this request and its repeats would remove.
    """
    queue = await request.queue()
    chosen = parse_states(request.body.states) if request.body.states else UNLOCKED
    selection = MessageSelection(chosen, parse_filter(request.body.filter), request.body.limit)
    if request.body.dry_run:
        return Response(PurgedMessages(removed=0, **await _plan(request, queue, selection)))
    removed = await purge(request.broker.administration, queue, selection, request.context.long_poll_cap_seconds)
    return Response(PurgedMessages(removed=removed))


async def _plan(
    request: Request[None] | Request[PurgeQueue], queue: Queue, selection: MessageSelection
) -> dict[str, Any]:
    time_limit_seconds = request.context.long_poll_cap_seconds
    return plan_fields(await plan_selection(request.broker.administration, queue, selection, time_limit_seconds))


def _authorize_forwarding(request: Request[Any], body: QueueSettingsBody | QueuePatch) -> None:
    """Refuse a client that may not send to a queue to forward to: it would reach that queue by its own one."""
    for target in (body.forward_to, body.forward_dead_letters_to):
        if isinstance(target, str):
            authorize(request.principal, Right.SEND, target)


def _apply_patch(settings: QueueSettings, patch: QueuePatch) -> QueueSettings:
    try:
        return apply_patch(settings, patch)
    except msgspec.ValidationError as error:
        raise invalid_request(error, QueueSettingsBody) from None


def _etag_header(queue: Queue) -> Headers:
    return ((b"etag", b'"%s"' % queue.etag.encode()),)
