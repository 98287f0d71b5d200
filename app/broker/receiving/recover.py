"""Recover: a receiver gets its own locked messages again (S1.66), under new tokens.

One transaction ends the deliveries under the old tokens and grants the new ones, so a message never has two tokens that
can settle it. A holder of an old token gets `lock-lost` with the cause `recovered`.

A lock that was renewed has a record in the lock store, and its holder could still renew it there. So a recovery raises the
lock version of the queue: records of earlier versions cannot be extended.

Crash windows: before the commit nothing has happened. After it the receiver still holds the messages, and gets them when
it recovers again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from app.broker.ports import Counters, LockStore, Notifier, RecoverStore
from app.broker.queue_cache import QueueCache
from app.broker.response_limits import ResponseLimits
from app.domain.delivery import Recovery
from app.domain.message import Message
from app.domain.queue import Queue, check_receive_enabled, lock_duration_of
from app.domain.settlement import MAX_GENERATION, LockToken, Outcome
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class RecoverPorts:
    """What recoveries use."""

    messages: RecoverStore
    lock_store: LockStore
    queue_cache: QueueCache
    notifier: Notifier
    limits: ResponseLimits
    counters: Counters
    clock: Clock


async def recover(
    ports: RecoverPorts, queue: Queue, receiver_id: str, max_messages: int, *, counted: bool = True
) -> list[Message]:
    """Lock the messages of this receiver under new tokens, and return them in order of delivery.

    A recovery counts a delivery and no failure. With `counted` False it counts no delivery, for a receiver that never got
    the earlier one. Messages whose lock has ended are left out. Refuses with `ReceiveDisabled` or `Overloaded`.
    """
    check_receive_enabled(queue)
    recovery = Recovery(
        queue.id, receiver_id, max_messages, lock_duration_of(queue.settings, None), counted, ports.limits.max_bytes
    )
    async with ports.limits.budget.reserve(ports.limits.max_bytes):
        read_started_at = ports.clock.monotonic()
        recovered = await ports.messages.recover(recovery)
    if recovered.renewed:
        await _forget_renewals(ports, queue, recovered.renewed)
    ports.counters.count("messages_recovered", len(recovered.messages))
    ports.counters.count_messages(queue.id, Outcome.RECOVERED, len(recovered.messages))
    ports.counters.count_messages(queue.id, "delivered", len(recovered.messages))
    return [replace(message, read_started_at=read_started_at) for message in recovered.messages]


async def _forget_renewals(ports: RecoverPorts, queue: Queue, tokens: Sequence[LockToken]) -> None:
    """Make every process use the new lock version of the queue, and delete the records of the old tokens."""
    ports.queue_cache.forget(queue)
    ports.notifier.queues_changed()
    await ports.lock_store.delete_records([(token, MAX_GENERATION) for token in tokens])
