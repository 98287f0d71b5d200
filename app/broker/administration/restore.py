"""Restore: bring purged and cancelled messages back from the archive, each once.

A restored message is a new message with the content of the archived one. Crash window: one transaction stores a message
and marks the archived one as restored. So a restore that was interrupted can be repeated.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from math import inf

from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.select_messages import MessageSelection, select_restorable
from app.broker.notify_receivers import StateChange
from app.broker.sending.target_queue import free_capacity, queue_full, with_current_queue
from app.domain.instant import Instant
from app.domain.message import SelectedMessage
from app.domain.queue import Queue, check_send_enabled
from app.domain.refusals import QueueFull
from app.domain.weight import count_that_fit

_MAX_STEP_BYTES = 4 << 20
"""Weight of the messages that one transaction restores, unless it restores a single one. A batch of sends has as many."""


async def restore(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection, since: Instant, timeout_seconds: float = inf
) -> int:
    """Store the messages again that were purged or cancelled since `since`; return how many before the timeout.

    They are due now, in the order of their old sequence numbers, with counts of 0. A restore that has found no
    message continues past the timeout, as a purge does. Messages that are too large for the queue stay in the archive.
    Refuses with `SendDisabled` as a send does, with `QueueFull` if the queue has no room, and with `Overloaded` if too
    many requests with a filter read.
    """
    check_send_enabled(queue)
    deadline = ports.clock.monotonic() + timeout_seconds
    batches = select_restorable(ports, queue, selection, since)
    restored = 0
    try:
        with ports.searches.admit(selection.message_filter):
            async for step in _steps(batches):
                if step:
                    act = partial(_restore_step, ports, step)
                    restored += await with_current_queue(ports.queue_cache, queue, act)
                if restored and ports.clock.monotonic() >= deadline:
                    break
    except QueueFull:
        if not restored:
            raise
    ports.counters.count("messages_restored", restored)
    return restored


async def _restore_step(ports: AdministrationPorts, step: Sequence[SelectedMessage], queue: Queue) -> int:
    """Restore the first messages, as many as the queue has room for; return how many.

    Refuses with `QueueFull` if none fits, or with `SendDisabled`.
    """
    check_send_enabled(queue)
    fitting = step[: await free_capacity(ports.store.queues, queue, len(step))]
    if not fitting:
        raise queue_full(queue)
    async with ports.limits.budget.reserve(sum(message.weight for message in fitting)):
        receipts = await ports.store.restore(queue, [message.sequence_number for message in fitting])
    ports.receivers.notify(
        StateChange(queue.id, receipt.sequence_number, receipt.state) for receipt in receipts if receipt.state
    )
    return len(receipts)


async def _steps(batches: AsyncIterator[list[SelectedMessage]]) -> AsyncIterator[Sequence[SelectedMessage]]:
    """Yield the messages of each batch in steps of bounded weight. An empty batch is a step, too."""
    async for batch in batches:
        start = 0
        while True:
            count = count_that_fit((message.weight for message in batch[start:]), _MAX_STEP_BYTES)
            yield batch[start : start + count]
            start += count
            if start >= len(batch):
                break
