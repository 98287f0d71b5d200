"""Plan: what a purge, a redrive or the deletion of a queue would do now, without doing it.

A plan uses the selection of the request itself: it reads in batches, each in its turn, and reads no bodies.
"""

import sys
from dataclasses import dataclass, replace
from math import inf

from app.broker.filters import MatchAll
from app.broker.ports import PlanStore, QueueTotals
from app.broker.queue_capacity import free_capacity, queue_full
from app.broker.redrive import check_rate, redrivable
from app.broker.search_state import SearchRegistry
from app.broker.select_messages import MessageSelection, select_batches
from app.domain.plan import MAX_SAMPLE_SIZE, MessageSummary, Plan, summarize
from app.domain.queue import Queue, check_send_enabled
from app.domain.weight import content_bytes
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class PlanPorts:
    """What plans use."""

    messages: PlanStore
    searches: SearchRegistry
    queue_totals: QueueTotals
    clock: Clock


async def plan_selection(
    ports: PlanPorts, queue: Queue, selection: MessageSelection, timeout_seconds: float = inf
) -> Plan:
    """Return what a purge of this selection, repeated until it removes nothing, would remove now.

    The plan is incomplete if the timeout ends the reading, even if nothing was found by then.
    """
    deadline = ports.clock.monotonic() + timeout_seconds
    count = total_bytes = 0
    first: list[int] = []
    async for batch in select_batches(ports.messages, ports.searches, queue, selection):
        count += len(batch)
        total_bytes += sum(map(content_bytes, batch))
        first += [message.sequence_number for message in batch[: MAX_SAMPLE_SIZE - len(first)]]
        if ports.clock.monotonic() >= deadline:
            is_complete = False
            break
    else:
        is_complete = True
    return Plan(count, total_bytes, await _read_sample(ports, queue, first), is_complete)


async def plan_redrive(
    ports: PlanPorts,
    queue: Queue,
    to_queue: Queue,
    selection: MessageSelection,
    rate: float | None,
    timeout_seconds: float = inf,
) -> Plan:
    """Return what a redrive of this selection, repeated until it moves nothing, would move now.

    A redrive to another queue ends when that queue is full. Refuses as the redrive does.
    """
    check_send_enabled(to_queue)
    check_rate(rate, timeout_seconds)
    if to_queue.id == queue.id:
        return await plan_selection(ports, queue, selection, timeout_seconds)
    limit = sys.maxsize if selection.limit is None else selection.limit
    room = await free_capacity(ports.queue_totals, to_queue, limit)
    # A full queue refuses the first message, so one message is enough to find out.
    fitting = replace(redrivable(selection, queue, to_queue), limit=max(1, room))
    plan = await plan_selection(ports, queue, fitting, timeout_seconds)
    if plan.count > room:
        raise queue_full(to_queue)
    return plan


async def _read_sample(ports: PlanPorts, queue: Queue, numbers: list[int]) -> list[MessageSummary]:
    """Return summaries of those of these messages that are still in the queue."""
    async with ports.searches.turn(MatchAll()):
        return [summarize(message) for message in await ports.messages.read_metadata(queue.id, numbers)]
