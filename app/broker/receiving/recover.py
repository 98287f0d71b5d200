"""Recover: a receiver gets its own locked messages again (S1.66), under new tokens.

One transaction ends the deliveries under the old tokens and grants the new ones, so a message never has two tokens that
can settle it. A holder of an old token gets `lock-lost` with the cause `recovered`.

A lock that was renewed has a record in the lock store, and its holder could still renew it there. So a recovery raises the
lock version of the queue: records of earlier versions cannot be extended.

Crash windows: before the commit nothing has happened. After it the receiver still holds the messages, and gets them when
it recovers again.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from app.broker.receiving.ports import ReceivingPorts
from app.domain.delivery import Recovery
from app.domain.message import Message
from app.domain.queue import Queue, check_receive_enabled, lock_duration_of
from app.domain.settlement import MAX_GENERATION, LockToken, Outcome


async def recover(
    ports: ReceivingPorts, queue: Queue, receiver_id: str, max_messages: int, *, counted: bool = True
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
        recovered = await ports.store.recover(recovery)
    if recovered.renewed:
        await _forget_renewals(ports, queue, recovered.renewed)
    ports.counters.count("messages_recovered", len(recovered.messages))
    ports.counters.count_messages(queue.id, Outcome.RECOVERED, len(recovered.messages))
    ports.counters.count_messages(queue.id, "delivered", len(recovered.messages))
    return [replace(message, read_started_at=read_started_at) for message in recovered.messages]


async def _forget_renewals(ports: ReceivingPorts, queue: Queue, tokens: Sequence[LockToken]) -> None:
    """Make every process use the new lock version of the queue, and delete the records of the old tokens."""
    ports.queue_cache.forget(queue)
    ports.settling.notifier.queues_changed()
    await ports.settling.lock_store.delete_records([(token, MAX_GENERATION) for token in tokens])
