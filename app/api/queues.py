"""Queues over HTTP: made, looked at, changed, emptied and removed."""

from functools import partial

import msgspec

from app.api.bodies import Headers
from app.api.desk import Call, wrong_cursor
from app.api.operation import MERGE_PATCH, Reply, operation
from app.broker import queues as verbs
from app.broker.filters import CelFilter, Everything, Filter
from app.broker.purge import Choice, purge
from app.domain.access import Right
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings, is_valid_name
from app.wire.complaints import invalid
from app.wire.queue_changes import QueuePatch, patched
from app.wire.queues import (
    Purged,
    PurgeQueue,
    QueuePage,
    QueueSettingsBody,
    QueueStatusView,
    QueueView,
    queue_status,
    queue_view,
    states,
)
from app.wire.shapes import Page

QUEUE = "/v1/queues/{queue}"
UNLOCKED = [state for state in MessageState if state is not MessageState.LOCKED]


@operation(
    "PUT", QUEUE, right=Right.MANAGE, tag="queues",
    body=QueueSettingsBody, answers={200: QueueView, 201: QueueView}, refusals=(404, 409, 412, 422),
    headers=("If-Match", "If-None-Match"), tagged=(200, 201),
    example={"lock_duration_seconds": 60, "retry": {"kind": "exponential", "first_seconds": 1, "jitter": 0.2}},
)  # fmt: skip
async def put_queue(call: Call[QueueSettingsBody]) -> Reply:
    """Make a queue, or give it exactly these settings.

    Settings that are left out have their defaults. Equal settings change nothing. A change of the lock duration,
    the delivery limit or the status ends the locks that receivers hold.
    """
    name = call.path["queue"]
    condition = verbs.Condition(call.if_match(), call.if_none_match() or ())
    queue, made = await verbs.put_queue(call.broker, name, call.body.settings(), condition)
    return Reply(queue_view(queue), 201 if made else 200, headers=_tag(queue))


@operation(
    "GET", "/v1/queues", right=Right.BROWSE, tag="queues", answers={200: QueuePage}, refusals=(422,), query=Page,
)  # fmt: skip
async def list_queues(call: Call[None]) -> Reply:
    """List the queues by name, each with its settings and counts."""
    page: Page = call.query
    after = page.cursor or ""
    if after and not is_valid_name(after):
        raise wrong_cursor()
    listed = await verbs.list_queues(call.broker, after, page.limit + 1)
    shown = listed[: page.limit]
    more = shown[-1].queue.name if len(listed) > page.limit else None
    return Reply(QueuePage([queue_status(one.queue, one.counts) for one in shown], more))


@operation(
    "GET", QUEUE, right=Right.BROWSE, tag="queues", answers={200: QueueStatusView}, refusals=(404, 422), tagged=(200,),
)  # fmt: skip
async def get_queue(call: Call[None]) -> Reply:
    """Look at a queue: its settings, its status, and how many messages are in each state."""
    listed = await verbs.show_queue(call.broker, call.path["queue"])
    return Reply(queue_status(listed.queue, listed.counts), headers=_tag(listed.queue))


@operation(
    "PATCH", QUEUE, right=Right.MANAGE, tag="queues",
    body=QueuePatch, answers={200: QueueView}, refusals=(404, 412, 422), headers=("If-Match",), tagged=(200,),
    accepts=MERGE_PATCH, example={"max_delivery_count": 5, "default_ttl_seconds": None},
)  # fmt: skip
async def patch_queue(call: Call[QueuePatch]) -> Reply:
    """Change some settings of a queue, by a merge patch (RFC 7396): null brings a default back."""
    queue = await verbs.fresh(call.broker, call.path["queue"])
    change = partial(_patched, patch=call.body)
    changed = await verbs.change_queue(call.broker, queue, change, verbs.Condition(call.if_match()))
    return Reply(queue_view(changed), headers=_tag(changed))


@operation(
    "DELETE", QUEUE, right=Right.MANAGE, tag="queues",
    answers={204: None}, refusals=(404, 412, 422), headers=("If-Match",),
)  # fmt: skip
async def delete_queue(call: Call[None]) -> Reply:
    """Remove a queue.

    A background pass moves its messages to the archive as `purged`, unless the queue keeps no archive.
    """
    queue = await verbs.fresh(call.broker, call.path["queue"])
    await verbs.delete_queue(call.broker, queue, verbs.Condition(call.if_match()))
    return Reply(status=204)


@operation(
    "POST", QUEUE + "/purge", right=Right.MANAGE, tag="queues",
    body=PurgeQueue, answers={200: Purged}, refusals=(404, 422),
    example={"states": ["dead_lettered"], "filter": "message.failure_count > 3"},
)  # fmt: skip
async def purge_queue(call: Call[PurgeQueue]) -> Reply:
    """Remove messages of a queue to its archive.

    Locked ones stay unless `locked` is among the states, and so do messages sent after the call began. A message that
    is changed while the call looks at it may still be removed. Once something is removed, the answer comes no later
    than a long poll's, so a large purge takes several calls: repeat it until nothing is removed any more.
    """
    queue = await call.queue()
    chosen = states(call.body.states) if call.body.states else UNLOCKED
    choice = Choice(chosen, matching(call.body.filter), call.body.limit)
    return Reply(Purged(await purge(call.broker, queue, choice, call.desk.longest_wait_seconds)))


def matching(source: str | None, pointer: str = "/filter") -> Filter:
    """The filter of this source, everything without one. Refuses with `InvalidRequest`."""
    return Everything() if source is None else CelFilter(source, pointer)


def _patched(settings: QueueSettings, patch: QueuePatch) -> QueueSettings:
    try:
        return patched(settings, patch)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def _tag(queue: Queue) -> Headers:
    return ((b"etag", b'"%s"' % queue.edition.encode()),)
