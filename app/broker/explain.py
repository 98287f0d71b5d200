"""Explain: why a message is not delivered, or why a queue stands still. Nothing is locked, counted or changed.

The facts are read one after the other, so a message that moves meanwhile is explained as it was at the first read.
"""

from dataclasses import dataclass
from typing import assert_never

from app.broker.ports import ExplainStore, PromiseStore, QueueStore, StoreClock
from app.domain.delivery import wait_key_of
from app.domain.explanation import (
    MAX_MESSAGES_AHEAD,
    EndedMessage,
    MessageExplanation,
    MessageFacts,
    RecordedPromise,
    Surroundings,
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
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class ExplainPorts:
    """What explanations read."""

    messages: ExplainStore
    queues: QueueStore
    store_clock: StoreClock
    lock_store: PromiseStore
    wait_queue: WaitQueue[int]


async def explain_one_message(
    ports: ExplainPorts, queue: Queue, sequence_number: int
) -> MessageExplanation | EndedMessage:
    """Explain why a message is not delivered, or how it ended. Refuses with `MessageNotFound` if no trace of it is left."""
    facts = await ports.messages.read_facts(queue.id, sequence_number)
    if facts is not None:
        return explain_message(facts, queue.settings, await _surroundings(ports, facts))
    # The message is read first, because one that ends between the two reads is then found by the second.
    end = await ports.messages.read_end(queue.id, sequence_number)
    if end is not None:
        return end
    raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}, and no trace of one that ended.")


async def explain_whole_queue(ports: ExplainPorts, queue: Queue) -> QueueExplanation:
    """Explain why a queue stands still, or that it does not."""
    counts = (await ports.queues.counts([queue.id]))[queue.id]
    facts = QueueFacts(
        counts,
        await ports.messages.locked_facts(queue.id, MAX_LOCKS_READ),
        await ports.messages.next_due_at(queue.id, MAX_DUE_TIMES_READ),
        _has_receivers(ports, queue.id),
        await ports.store_clock.now(),
    )
    return explain_queue(facts, queue.settings)


async def _surroundings(ports: ExplainPorts, facts: MessageFacts) -> Surroundings:
    """Read what else decides about a message, as far as its state needs it."""
    match facts.state:
        case MessageState.AVAILABLE:
            ahead = await ports.messages.count_ahead(facts.queue_id, facts.delivery_position, MAX_MESSAGES_AHEAD)
            return Surroundings(messages_ahead=ahead, receivers_waiting=_has_receivers(ports, facts.queue_id))
        case MessageState.BLOCKED:
            return await _group_surroundings(ports, facts)
        case MessageState.LOCKED:
            return Surroundings(promise=await _promise(ports, facts))
        case MessageState.SCHEDULED | MessageState.DEFERRED | MessageState.DEAD_LETTERED:
            return Surroundings()
        case _:
            assert_never(facts.state)


async def _group_surroundings(ports: ExplainPorts, facts: MessageFacts) -> Surroundings:
    """Read which message of its group a blocked message waits for, and how many are blocked before it."""
    group_id = facts.group_id or ""
    behind = await ports.messages.first_in_flight(facts.queue_id, group_id)
    ahead = await ports.messages.count_blocked_ahead(
        facts.queue_id, group_id, facts.sequence_number, MAX_MESSAGES_AHEAD
    )
    return Surroundings(messages_ahead=ahead, behind=behind)


async def _promise(ports: ExplainPorts, facts: MessageFacts) -> RecordedPromise | None:
    """Return the lock store's record of a renewed lock. It has none of a lock that was never renewed."""
    if not facts.lock_generation:
        return None
    (promise,) = await ports.lock_store.promises([lock_of(facts).token])
    return promise


def _has_receivers(ports: ExplainPorts, queue_id: int) -> bool:
    return ports.wait_queue.has_waiters(wait_key_of(queue_id, MessageState.AVAILABLE))
