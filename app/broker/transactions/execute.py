"""Execute: settlements, states and sends in one call, which take effect together or not at all (S0.2, S1.10, S1.11).

The settlements are first tried as if no lock had ever been renewed, like every settlement. If one has no effect, the
unit has none. The rows then show why: the delivery has ended, which refuses the unit, or the fence needs the lock
store, or another request holds the row, which tries the unit again for about a second.

Crash windows: before the commit nothing has changed. After it, a repeat is recognised by its Idempotency-Key. Without
one it is refused, because its deliveries have ended.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from app.broker.attempts import first_result
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.ports.transactions import SettlementsFailed
from app.broker.sending.ports import SendingPorts
from app.broker.sending.send import create_drafts
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.settle import (
    MAX_TRIES,
    SettlementRequest,
    build_settlements,
    note_settled,
    pause_before_retry,
    resolve_late,
    with_current_fence,
)
from app.broker.topics.ports import TopicPorts
from app.broker.topics.publish import draft_all, route, with_ids
from app.broker.transactions.ports import TransactionPorts
from app.domain.message import Draft
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, MessageBusy, Refusal, SynchronousMessage
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, NEVER_RENEWED, Settled, Settlement
from app.domain.state import StateChange
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.byte_budget import GrowingReservation


@dataclass(frozen=True, slots=True)
class UnitSend:
    """A message, and the name of the queue that it is sent to."""

    queue: str
    new_message: NewMessage


@dataclass(frozen=True, slots=True)
class UnitPublish:
    """A message with an id, and the name of the topic that it is published to."""

    topic: str
    new_message: NewMessage


@dataclass(frozen=True, slots=True)
class UnitSettlement:
    """A settlement, and the queue of its delivery."""

    queue: Queue
    request: SettlementRequest


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """Settlements, changes of states, sends and publishes to carry out together.

    No two settlements have the same token, no two changes of states the same key, and no two publishes the same id. The
    receipts of the sends come first in the result, then those of the copies that the publishes have made.
    """

    settlements: Sequence[UnitSettlement] = ()
    sends: Sequence[UnitSend] = ()
    publishes: Sequence[UnitPublish] = ()
    states: Sequence[StateChange] = ()


async def execute(
    ports: TransactionPorts, request: UnitRequest, attempt: Attempt | None
) -> AttemptResult[WorkUnitResult]:
    """Carry out all settlements, changes of states, sends and publishes, or none.

    Refuses as `send`, `publish` and `settle_one` do, with a pointer to a settlement that is refused, and with
    `VersionConflict`. With an attempt, a repeat gets the first result.
    """
    try:
        async with ports.topics.budget.reserve_more() as held:
            return await _execute(ports, request, attempt, held)
    except Refusal:
        if (first := await first_result(attempt, ports.sending.store.find_execution_result)) is None:
            raise
        return first


def identified(publishes: Sequence[UnitPublish], new_id: Callable[[], str]) -> list[UnitPublish]:
    """Return the publishes, each with a message id. Refuses with a pointer to one that repeats an id."""
    new_messages = with_ids([entry.new_message for entry in publishes], new_id, "/publishes")
    return [UnitPublish(entry.topic, new_message) for entry, new_message in zip(publishes, new_messages, strict=True)]


async def _execute(
    ports: TransactionPorts, request: UnitRequest, attempt: Attempt | None, held: GrowingReservation
) -> AttemptResult[WorkUnitResult]:
    settlements = await _build_settlements(ports.settling, request.settlements)
    drafts = await _create_drafts(ports.topics, request, held)
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(ports.settling.clock, try_number - 1)
        try:
            done = await ports.sending.store.execute(WorkUnit(settlements, drafts, request.states), attempt)
        except SettlementsFailed as failed:
            settlements = await _with_current_fences(ports.settling, request.settlements, settlements, failed)
        except QueueGone:
            # One of those to which a queue forwards or a topic copies may be gone.
            ports.sending.queue_cache.clear()
            drafts = await _create_drafts(ports.topics, request, held)
        else:
            if not done.replayed:
                await _finish(ports, settlements, drafts, done.result)
            return done
    raise MessageBusy


async def _finish(
    ports: TransactionPorts, settlements: Sequence[Settlement], drafts: Sequence[Draft], result: WorkUnitResult
) -> None:
    """Notify receivers, count versions, and delete the lock records of renewed locks."""
    if not result.is_duplicate:
        ports.sending.receivers.notify_sent(drafts, result.receipts)
    if added := sum(not version.duplicate for version in result.versions):
        ports.settling.counters.count("versions_added", added)
    note_settled(ports.settling, settlements, result.settled)
    renewed = [settlement.token for settlement in settlements if settlement.fence != NEVER_RENEWED]
    if renewed:
        await ports.settling.lock_store.delete_records([(token, MAX_GENERATION) for token in renewed])


# ---- settlements -----------------------------------------------------------------------------------------------------


async def _build_settlements(ports: SettlingPorts, entries: Sequence[UnitSettlement]) -> list[Settlement]:
    """Build the settlements, from the locked rows if needed. Refuses with the reason of the first that cannot be."""
    by_queue: defaultdict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        by_queue[entry.queue.id].append(index)
    built: dict[int, Settlement] = {}
    for indexes in by_queue.values():
        queue = entries[indexes[0]].queue
        found = await build_settlements(ports, queue, [entries[index].request for index in indexes])
        for index, settlement in zip(indexes, found, strict=True):
            if settlement is None or isinstance(settlement, Refusal):
                ended = settlement or _refusal(await resolve_late(ports, queue, entries[index].request.token, None))
                raise ended.located_at(f"/settlements/{index}")
            built[index] = replace(settlement, is_in_group=queue.has_groups, keeps_history=queue.settings.history)
    return [built[index] for index in range(len(entries))]


async def _with_current_fences(
    ports: SettlingPorts,
    entries: Sequence[UnitSettlement],
    settlements: Sequence[Settlement],
    failed: SettlementsFailed,
) -> list[Settlement]:
    """Return the settlements to try next, after these have failed. Refuses if a delivery has ended."""
    indexes = [index for index, settlement in enumerate(settlements) if settlement.token in failed.tokens]
    found = await asyncio.gather(
        *(with_current_fence(ports, entries[index].queue, settlements[index]) for index in indexes)
    )
    current = list(settlements)
    for index, settlement in zip(indexes, found, strict=True):
        if isinstance(settlement, Settled | Refusal):
            raise _refusal(settlement).located_at(f"/settlements/{index}")
        if settlement is not None:
            if settlement.is_offered:
                raise SynchronousMessage().located_at(f"/settlements/{index}")
            current[index] = settlement
    return current


def _refusal(ended: Settled | Refusal) -> Refusal:
    """Return the refusal of a delivery that ended before this unit, in the same way or in another one."""
    return ended if isinstance(ended, Refusal) else AlreadySettled(ended.outcome)


# ---- sends -----------------------------------------------------------------------------------------------------------


async def _create_drafts(ports: TopicPorts, request: UnitRequest, held: GrowingReservation) -> list[Draft]:
    """Build the drafts of the sends, then of the publishes. Refuses as `create_drafts`, `route` and `draft_all` do."""
    sent = await _create_sent(ports.sending, request.sends)
    if not request.publishes:
        return sent
    routed = await route(ports, [(entry.topic, entry.new_message) for entry in request.publishes], held)
    return sent + await draft_all(ports.sending, routed)


async def _create_sent(ports: SendingPorts, sends: Sequence[UnitSend]) -> list[Draft]:
    """Build the drafts of the sends. Each queue counts all of its messages at once."""
    by_queue: defaultdict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(sends):
        by_queue[entry.queue].append(index)
    drafts: dict[int, Draft] = {}
    for name, indexes in by_queue.items():
        new_messages = [sends[index].new_message for index in indexes]
        queue = await ports.queue_cache.by_name_for_send(name, new_messages)
        drafts.update(zip(indexes, await create_drafts(ports, queue, new_messages), strict=True))
    return [drafts[index] for index in range(len(sends))]
