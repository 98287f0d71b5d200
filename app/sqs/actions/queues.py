"""Queues: create, find, list, change, purge and delete them."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from app.broker.administration import queues as verbs
from app.broker.administration.purge import purge
from app.broker.administration.range_pages import page_of_ranges
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.precondition import Precondition
from app.domain.access import Right
from app.domain.message import MessageState
from app.domain.name_ranges import ranges_within
from app.domain.queue import is_valid_name
from app.domain.refusals import InvalidRequest, PreconditionFailed, QueueNotFound
from app.http.request import ANY_TAG
from app.sqs.actions.settings import change_settings
from app.sqs.call import Call
from app.sqs.errors import QueueNameExists, UnsupportedOperation
from app.sqs.queue_attributes import attributes_of, changed_settings, new_settings, same_attributes
from app.sqs.redrive_policy import redrive_target
from app.sqs.shapes import queues as shapes
from app.sqs.shapes.members import Nothing
from app.wire.queues import MAX_QUEUE_BYTES

NO_PERMISSIONS = "The rights on queues belong to API keys: create a key with `peeklock key create`."
ABSENT = Precondition(if_none_match=ANY_TAG)
PURGED_STATES = (MessageState.AVAILABLE, MessageState.BLOCKED, MessageState.SCHEDULED, MessageState.LOCKED)
"""The states of messages that clients of SQS know. Messages that are set aside or dead-lettered stay."""


async def create_queue(call: Call[shapes.CreateQueue]) -> shapes.FoundQueue:
    """Create a queue, unless one of this name has the given attributes.

    Refuses with `QueueNameExists` if the queue exists with other attributes, and as `new_settings` and `_check_target` do.
    """
    attributes, name = call.body.attributes, call.queue_name
    settings = new_settings(name, attributes, call.body.tags)
    await _check_target(call, attributes)
    ports = call.broker.administration
    with suppress(PreconditionFailed):
        await verbs.put_queue(ports, name, settings, ABSENT)
        return shapes.FoundQueue(queue_url=call.url_of(name))
    existing = await verbs.reload_queue(ports, name)
    if not same_attributes(existing.settings, name, attributes):
        raise QueueNameExists(f"A queue named {name} exists, with other attributes.")
    return shapes.FoundQueue(queue_url=call.url_of(name))


async def get_queue_url(call: Call[shapes.GetQueueUrl]) -> shapes.FoundQueue:
    """Return the URL of a queue, which is never created. Any right on it is enough."""
    call.authorize_any()
    await call.queue()
    return shapes.FoundQueue(queue_url=call.url_of(call.queue_name))


async def list_queues(call: Call[shapes.ListQueues]) -> shapes.QueueList:
    """List the queues that the client may browse, by name."""
    body = call.body
    ranges = ranges_within(call.request.principal.grant.ranges(Right.BROWSE), body.queue_name_prefix)
    after = body.next_token or ""
    if after not in [found.end for found in ranges]:
        _check_token(after)
    limit = body.max_results or shapes.MAX_PAGE
    async with call.request.reserve_page(limit, MAX_QUEUE_BYTES):
        listed, more = await page_of_ranges(call.broker.store.queues.page, ranges, after, limit)
    urls = tuple(call.url_of(queue.name) for queue in listed)
    return shapes.QueueList(queue_urls=urls, next_token=more if body.max_results else None)


async def get_queue_attributes(call: Call[shapes.GetQueueAttributes]) -> shapes.QueueAttributes:
    """Return the attributes that are asked for. Any right on the queue is enough."""
    call.authorize_any()
    found = await verbs.get_queue(call.broker.administration, call.queue_name)
    attributes = attributes_of(found.queue, found.counts, call.region, call.body.attribute_names)
    return shapes.QueueAttributes(attributes=attributes)


async def set_queue_attributes(call: Call[shapes.SetQueueAttributes]) -> Nothing:
    """Change attributes of a queue. Receivers keep their locks. Refuses as `changed_settings` and `_check_target` do."""
    attributes = call.body.attributes
    await _check_target(call, attributes)
    await change_settings(call, partial(changed_settings, name=call.queue_name, attributes=attributes))
    return Nothing()


async def delete_queue(call: Call[shapes.DeleteQueue]) -> Nothing:
    """Delete a queue and its messages, which move to the archive."""
    ports = call.broker.administration
    await verbs.delete_queue(ports, await verbs.reload_queue(ports, call.queue_name))
    return Nothing()


async def purge_queue(call: Call[shapes.PurgeQueue]) -> Nothing:
    """Remove every message that the queue has, in flight too. Its archive keeps them, so that they can be restored."""
    queue = await call.queue()
    await purge(call.broker.administration, queue, MessageSelection(PURGED_STATES, MatchAll()))
    return Nothing()


async def list_dead_letter_source_queues(call: Call[shapes.ListDeadLetterSourceQueues]) -> shapes.SourceQueueList:
    """List the queues whose dead letters move to this one and that the client may browse.

    Refuses with `QueueNotFound`, and as `_check_token` does.
    """
    body = call.body
    await call.queue()
    sources = await call.broker.store.queues.dead_letter_sources(call.queue_name)
    grant, after = call.request.principal.grant, body.next_token or ""
    _check_token(after)
    names = [found.name for found in sources if found.name > after and grant.allows(Right.BROWSE, found.name)]
    limit = body.max_results or shapes.MAX_PAGE
    more = names[limit - 1] if body.max_results and len(names) > limit else None
    return shapes.SourceQueueList(queue_urls=tuple(map(call.url_of, names[:limit])), next_token=more)


async def add_permission(_call: Call[shapes.AddPermission]) -> Nothing:
    """Refuse with `UnsupportedOperation`."""
    raise UnsupportedOperation(NO_PERMISSIONS)


async def remove_permission(_call: Call[shapes.RemovePermission]) -> Nothing:
    """Refuse with `UnsupportedOperation`."""
    raise UnsupportedOperation(NO_PERMISSIONS)


def _check_token(token: str) -> None:
    """Refuse with `InvalidRequest` a NextToken that is not the name of a queue."""
    if token and not is_valid_name(token):
        raise InvalidRequest("This NextToken did not come from this list.")


async def _check_target(
    call: Call[shapes.CreateQueue] | Call[shapes.SetQueueAttributes], attributes: Mapping[str, str]
) -> None:
    """Refuse a redrive policy whose target the client may not send to, or that does not exist."""
    target = redrive_target(attributes)
    if target is None:
        return
    call.authorize(Right.SEND, target)
    try:
        await call.broker.queue_cache.by_name(target)
    except QueueNotFound:
        raise InvalidRequest(f"The RedrivePolicy names queue {target}, which does not exist.") from None
