"""Purge: move many messages to the archive in batches, each message fenced by the state that was read."""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.select_messages import MessageSelection, select_batches
from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.settling.end_synchronous_send import end_synchronous_sends
from app.domain.message import MessageState, SelectedMessage
from app.domain.queue import Queue
from app.domain.settlement import ANY_LOCK, MAX_GENERATION, Outcome, Removal, token_of


async def purge(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection, timeout_seconds: float = inf
) -> int:
    """Move the selected messages to the archive as purged; return how many were moved before the timeout.

    A purge that has found no message continues past the timeout until it finds one, because a result of 0 means that
    none is left. Locked messages are removed only if `locked` is among the states, even if their lock has ended but is
    not swept yet. Their holders get `lock-lost` with the cause `settled_by_administrator`. A message that a concurrent
    request has locked in the database stays. Refuses with `Overloaded` if too many requests with a filter read.
    """
    removed = 0
    deadline = ports.clock.monotonic() + timeout_seconds
    with ports.searches.admit(selection.message_filter):
        async for batch in select_batches(ports, queue, selection):
            unlocked = [message for message in batch if message.state is not MessageState.LOCKED]
            removed += await _purge_unlocked(ports, queue, unlocked, selection.states)
            removed += await _purge_locked(ports, queue, [m for m in batch if m.state is MessageState.LOCKED])
            if removed and ports.clock.monotonic() >= deadline:
                break
    ports.counters.count("messages_purged", removed)
    ports.counters.count_messages(queue.id, Outcome.PURGED, removed)
    return removed


async def _purge_unlocked(
    ports: AdministrationPorts, queue: Queue, messages: Sequence[SelectedMessage], states: Sequence[MessageState]
) -> int:
    """Remove messages as they were read. A blocked one that has become available since is removed as available."""
    if not messages:
        return 0
    removed = await ports.store.withdraw([_withdrawal(queue, message) for message in messages])
    admitted = [
        replace(message, state=MessageState.AVAILABLE)
        for message, is_removed in zip(messages, removed, strict=True)
        if not is_removed and message.state is MessageState.BLOCKED and MessageState.AVAILABLE in states
    ]
    return sum(removed) + await _purge_unlocked(ports, queue, admitted, states)


async def _purge_locked(ports: AdministrationPorts, queue: Queue, messages: Sequence[SelectedMessage]) -> int:
    removals = [_removal(queue, message) for message in messages]
    if not removals:
        return 0
    effective = await ports.store.remove_locked(queue.id, removals)
    # Those whose sender waits are left. They end one by one, so that each sender gets its answer.
    left = [replace(removal, is_offered=True) for removal, done in zip(removals, effective, strict=True) if not done]
    removed = sum(effective) + sum(await end_synchronous_sends(ports.settling, left))
    if removed:
        ports.queue_cache.forget(queue)
        ports.notifier.queues_changed()
        # A process with the old queue version in its cache could still renew a removed lock through its record.
        await ports.lock_store.delete_records([(removal.token, MAX_GENERATION) for removal in removals])
    return removed


def _withdrawal(queue: Queue, message: SelectedMessage) -> Withdrawal:
    row = UnlockedRow(message.sequence_number, queue.id, message.state)
    return Withdrawal(row, queue.name, Outcome.PURGED, queue.settings.archive_retention)


def _removal(queue: Queue, message: SelectedMessage) -> Removal:
    # The queue may have had groups before, so any message may be in one.
    return Removal(
        token_of(message),
        queue.id,
        queue.name,
        Outcome.PURGED,
        queue.settings.archive_retention,
        ANY_LOCK,
        is_in_group=True,
        keeps_history=queue.settings.history,
    )
