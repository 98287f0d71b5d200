"""Plan: what a purge, a redrive, a move, a restore or the deletion of a queue would do now, without doing it.

A plan uses the selection of the request itself: it reads in batches, each in its turn, and reads no bodies.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TypeAlias

from app.broker.administration.move_page import accepting_target, open_targets
from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.redrive import check_rate, redrivable
from app.broker.administration.select_messages import MessageSelection, select_batches, select_restorable
from app.broker.filtering.filters import MatchAll
from app.broker.sending.target_queue import free_capacity, queue_full
from app.domain.instant import Instant
from app.domain.message import MessageMetadata, SelectedMessage
from app.domain.move_task import MoveRequest, movable_states
from app.domain.plan import MAX_SAMPLE_SIZE, Plan, summarize
from app.domain.queue import Queue, check_send_enabled
from app.domain.weight import content_bytes

ReadSample: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[MessageMetadata]]]
"""Returns those of these messages that still exist."""


async def plan_selection(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection, timeout_seconds: float = inf
) -> Plan:
    """Return what a purge of this selection, repeated until it removes nothing, would remove now.

    The plan is incomplete if the timeout ends the reading, even if nothing was found by then. Refuses with `Overloaded` if
    too many requests with a filter read.
    """
    batches = select_batches(ports, queue, selection)
    with ports.searches.admit(selection.message_filter):
        return await _plan(ports, batches, partial(ports.store.read_metadata, queue.id), timeout_seconds)


async def plan_redrive(
    ports: AdministrationPorts,
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
    plan = partial(plan_selection, ports, queue, timeout_seconds=timeout_seconds)
    return await _plan_what_fits(ports, to_queue, redrivable(selection, queue, to_queue), plan)


async def plan_move(
    ports: AdministrationPorts, queue: Queue, request: MoveRequest, timeout_seconds: float = inf
) -> Plan:
    """Return what a move task would move if it passed over the messages of the queue now.

    A task waits for the room that its targets do not have, so those messages count. Refuses as `open_targets` does.
    """
    targets = await open_targets(ports.queue_cache, queue, request)
    selection = MessageSelection(movable_states(queue, request), _Accepted(queue, request, targets))
    return await plan_selection(ports, queue, selection, timeout_seconds)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """Selects the messages that a target of a move accepts."""

    source: Queue
    request: MoveRequest
    targets: Mapping[str, Queue]

    async def select(self, messages: Sequence[MessageMetadata]) -> list[MessageMetadata]:
        """See `Filter`."""
        return [one for one in messages if accepting_target(one, self.source, self.request, self.targets) is not None]


async def plan_restore(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection, since: Instant, timeout_seconds: float = inf
) -> Plan:
    """Return what a restore of this selection, repeated until it restores nothing, would restore now.

    A restore ends when the queue is full. Refuses as the restore does.
    """
    check_send_enabled(queue)

    async def plan(fitting: MessageSelection) -> Plan:
        batches = select_restorable(ports, queue, fitting, since)
        with ports.searches.admit(selection.message_filter):
            return await _plan(ports, batches, ports.store.read_restorable, timeout_seconds)

    return await _plan_what_fits(ports, queue, selection, plan)


async def _plan_what_fits(
    ports: AdministrationPorts,
    to_queue: Queue,
    selection: MessageSelection,
    plan: Callable[[MessageSelection], Awaitable[Plan]],
) -> Plan:
    """Return the plan of as many selected messages as the queue has room for.

    Refuses with `QueueFull` if it has no room for the first one.
    """
    limit = sys.maxsize if selection.limit is None else selection.limit
    room = await free_capacity(ports.store.queues, to_queue, limit)
    found = await plan(replace(selection, limit=max(1, room)))
    if found.count > room:
        raise queue_full(to_queue)
    return found


async def _plan(
    ports: AdministrationPorts,
    batches: AsyncIterator[list[SelectedMessage]],
    read_sample: ReadSample,
    timeout_seconds: float,
) -> Plan:
    deadline = ports.clock.monotonic() + timeout_seconds
    count = total_bytes = 0
    first: list[int] = []
    async for batch in batches:
        count += len(batch)
        total_bytes += sum(map(content_bytes, batch))
        first += [message.sequence_number for message in batch[: MAX_SAMPLE_SIZE - len(first)]]
        if ports.clock.monotonic() >= deadline:
            is_complete = False
            break
    else:
        is_complete = True
    async with ports.searches.turn(MatchAll()):
        sample = [summarize(message) for message in await read_sample(first)]
    return Plan(count, total_bytes, sample, is_complete)
