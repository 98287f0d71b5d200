"""Explain: why a message is not delivered, or why a queue is stalled. Nothing is locked, counted or changed.

The facts are read one after the other. A message that moves between two reads is explained as it was at the first one.
"""

from typing import assert_never

from app.broker.administration.ports import AdministrationPorts
from app.domain.delivery import wait_key_of
from app.domain.explanation import (
    MAX_MESSAGES_AHEAD,
    DeliveryContext,
    EndedMessage,
    MessageExplanation,
    MessageFacts,
    RecordedPromise,
    explain_message,
    lock_of,
)
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.queue_explanation import (
    MAX_DUE_TIMES_READ,
    MAX_LOCKS_READ,
    QueueExplanation,
    QueueFacts,
    explain_queue,
)
from app.domain.refusals import MessageNotFound
from app.domain.transaction import WaitingSettlement


async def explain_one_message(
    ports: AdministrationPorts, queue: Queue, sequence_number: int, viewer: str
) -> MessageExplanation | EndedMessage:
    """Explain why a message is not delivered, or how it ended, to the principal `viewer`.

    Refuses with `MessageNotFound` if neither the queue nor the archive has a record of it.
    """
    facts = await ports.store.read_facts(queue.id, sequence_number)
    if facts is not None:
        return explain_message(facts, queue.settings, await _context(ports, facts, viewer))
    # In this order, because the second read finds a message that ends between the two.
    end = await ports.store.read_end(queue.id, sequence_number)
    if end is not None:
        return end
    raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}, and has no record of its end.")


async def explain_whole_queue(ports: AdministrationPorts, queue: Queue, viewer: str) -> QueueExplanation:
    """Explain to the principal `viewer` why a queue is stalled, or that it is not."""
    counts = (await ports.store.queues.counts([queue.id]))[queue.id]
    locked = await ports.store.locked_facts(queue.id, MAX_LOCKS_READ)
    waiting = await ports.store.waiting_settlements([lock_of(facts).token for facts in locked], viewer)
    facts = QueueFacts(
        counts,
        locked,
        await ports.store.next_due_at(queue.id, MAX_DUE_TIMES_READ),
        _has_receivers(ports, queue.id),
        await ports.store.now(),
        list(waiting.values()),
    )
    return explain_queue(facts, queue.settings)


async def _context(ports: AdministrationPorts, facts: MessageFacts, viewer: str) -> DeliveryContext:
    """Read the context that a message in this state needs."""
    match facts.state:
        case MessageState.AVAILABLE:
            ahead = await ports.store.count_ahead(facts.queue_id, facts.delivery_position, MAX_MESSAGES_AHEAD)
            return DeliveryContext(messages_ahead=ahead, receivers_waiting=_has_receivers(ports, facts.queue_id))
        case MessageState.BLOCKED:
            return await _group_context(ports, facts, viewer)
        case MessageState.LOCKED:
            return DeliveryContext(promise=await _promise(ports, facts), waiting=await _waiting(ports, facts, viewer))
        case MessageState.SCHEDULED | MessageState.DEFERRED | MessageState.DEAD_LETTERED:
            return DeliveryContext()
        case _:
            assert_never(facts.state)


async def _group_context(ports: AdministrationPorts, facts: MessageFacts, viewer: str) -> DeliveryContext:
    """Read which message of its group a blocked message waits for, and how many are blocked before it."""
    group_id = facts.group_id or ""
    behind = await ports.store.first_in_flight(facts.queue_id, group_id)
    ahead = await ports.store.count_blocked_ahead(facts.queue_id, group_id, facts.sequence_number, MAX_MESSAGES_AHEAD)
    waiting = None if behind is None else await _waiting(ports, behind, viewer)
    return DeliveryContext(messages_ahead=ahead, behind=behind, waiting=waiting)


async def _waiting(ports: AdministrationPorts, facts: MessageFacts, viewer: str) -> WaitingSettlement | None:
    """Return the settlement of a message that waits for a commit, if it is locked and has one."""
    if facts.state is not MessageState.LOCKED:
        return None
    token = lock_of(facts).token
    return (await ports.store.waiting_settlements([token], viewer)).get(token)


async def _promise(ports: AdministrationPorts, facts: MessageFacts) -> RecordedPromise | None:
    """Return the lock store's record of a renewed lock, None for a lock that was never renewed."""
    if not facts.lock_generation:
        return None
    (promise,) = await ports.lock_store.promises([lock_of(facts).token])
    return promise


def _has_receivers(ports: AdministrationPorts, queue_id: int) -> bool:
    return ports.wait_queue.has_waiters(wait_key_of(queue_id, MessageState.AVAILABLE))
