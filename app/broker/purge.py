"""Purge and redrive: change many messages in bounded batches, each message fenced by the state that was read."""

import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import inf

from app.broker.broker import Broker
from app.broker.current_queue import with_current_queue
from app.broker.filtered_read import read_filtered
from app.broker.filters import Filter
from app.broker.notify_receivers import StateChange, notify_receivers
from app.broker.ports import Redrive, UnlockedRow, Withdrawal
from app.broker.queue_capacity import free_capacity, queue_full
from app.broker.search_state import MAX_BATCH_SIZE
from app.domain.message import MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import Queue, check_send_enabled
from app.domain.refusals import FieldError, InvalidRequest, QueueFull
from app.domain.settlement import ANY_LOCK, MAX_GENERATION, Outcome, Removal, token_of
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.clock import Clock

BATCH_SIZE = MAX_BATCH_SIZE
"""Messages per statement: a purge of millions never holds more than this many rows."""


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which messages: in these states, matched by the filter, at most `limit` of them (None: all).

    Messages with more than `max_message_bytes` of body and properties are left out.
    """

    states: Sequence[MessageState]
    message_filter: Filter
    limit: int | None = None
    max_message_bytes: int = sys.maxsize


async def purge(broker: Broker, queue: Queue, selection: MessageSelection, timeout_seconds: float = inf) -> int:
    """Move the selected messages to the archive as purged; return how many were moved before the timeout.

    A purge that has found no message continues past the timeout until it finds one, because a result of 0 means that
    none is left. Locked messages are removed only if `locked` is among the states, even if their lock has ended but is
    not swept yet. Their holders get `lock-lost` with the cause `settled_by_administrator`. A message that a concurrent
    request has locked in the database stays.
    """
    removed = 0
    deadline = broker.clock.monotonic() + timeout_seconds
    async for batch in _batches(broker, queue, selection):
        removed += await _purge_unlocked(broker, queue, [m for m in batch if m.state is not MessageState.LOCKED])
        removed += await _purge_locked(broker, queue, [m for m in batch if m.state is MessageState.LOCKED])
        if removed and broker.clock.monotonic() >= deadline:
            break
    broker.counters.count("messages_purged", removed)
    return removed


async def _purge_unlocked(broker: Broker, queue: Queue, messages: Sequence[SelectedMessage]) -> int:
    withdrawals = [_withdrawal(queue, message) for message in messages]
    return sum(await broker.store.withdraw(withdrawals)) if withdrawals else 0


async def _purge_locked(broker: Broker, queue: Queue, messages: Sequence[SelectedMessage]) -> int:
    removals = [_removal(queue, message) for message in messages]
    if not removals:
        return 0
    removed = sum(await broker.store.remove_locked(queue.id, removals))
    if removed:
        broker.queue_cache.forget(queue)
        broker.notifier.queues_changed()
        # A process with the old queue version in its cache could still renew a removed lock through its record.
        await broker.lock_store.delete_records([(removal.token, MAX_GENERATION) for removal in removals])
    return removed


async def redrive(
    broker: Broker,
    queue: Queue,
    to_queue: Queue,
    selection: MessageSelection,
    rate: float | None,
    timeout_seconds: float = inf,
) -> int:
    """Make selected dead-lettered messages available with counts of 0; return how many before the timeout.

    A redrive that has found no message continues past the timeout, as a purge does. It moves at most `rate` messages a
    second (None: no limit). The limit also holds over successive calls, because the response waits until the next
    message may move. Another queue receives only as many messages as it has room for, and none that is too large for
    it. Refuses with `InvalidRequest` a rate at which one message takes longer than the timeout, with `SendDisabled` as
    a send does, and with `QueueFull` if the target has no room.
    """
    check_send_enabled(to_queue)
    if to_queue.id != queue.id:
        selection = replace(selection, max_message_bytes=to_queue.settings.max_message_bytes)
    rate_limiter = _RateLimiter(broker.clock, rate, timeout_seconds)
    moved = 0
    try:
        async for chunk in _chunks(_batches(broker, queue, selection), rate_limiter.burst_size):
            if moved and not rate_limiter.has_time_for(moved + len(chunk)):
                break
            if chunk:
                redrive_chunk = partial(_redrive_batch, broker, chunk)
                moved += await with_current_queue(broker, to_queue, redrive_chunk, broker.queue_cache.by_name)
            await rate_limiter.wait(moved)
    except QueueFull:
        if not moved:
            raise
    broker.counters.count("messages_redriven", moved)
    return moved


async def _redrive_batch(broker: Broker, chunk: Sequence[SelectedMessage], to_queue: Queue) -> int:
    """Redrive the first messages, as many as the target has room for; return how many.

    Messages that stay in their own queue need no room. Refuses with `QueueFull` if none fits, or with `SendDisabled`.
    """
    check_send_enabled(to_queue)
    is_same_queue = chunk[0].queue_id == to_queue.id
    fitting = chunk if is_same_queue else chunk[: await free_capacity(broker, to_queue, len(chunk))]
    if not fitting:
        raise queue_full(to_queue)
    moved = await broker.store.redrive([_redrive(message, to_queue) for message in fitting])
    notify_receivers(
        broker,
        (StateChange(to_queue.id, one.sequence_number, MessageState.AVAILABLE) for one in compress(fitting, moved)),
    )
    return sum(moved)


class _RateLimiter:
    """Limits how many messages a redrive moves a second, and until when.

    Refuses with `InvalidRequest` a rate at which not even one message moves before the timeout.
    """

    def __init__(self, clock: Clock, rate: float | None, timeout_seconds: float) -> None:
        if rate is not None and 1 / rate > timeout_seconds:
            detail = f"Not one message goes at this rate in the {timeout_seconds:g} seconds that an answer may take."
            raise InvalidRequest(field_errors=[FieldError("/rate_per_second", detail)])
        self._clock = clock
        self._rate = rate
        self._started_at = clock.monotonic()
        self._deadline = self._started_at + timeout_seconds
        self.burst_size = BATCH_SIZE if rate is None else max(1, int(rate * min(1.0, timeout_seconds)))
        """Messages that may move at once: those of one second."""

    def has_time_for(self, count: int) -> bool:
        """Whether the limit lets this many messages in total move before the timeout."""
        return max(self._time_of(count), self._clock.monotonic()) < self._deadline

    async def wait(self, count: int) -> None:
        """Wait until the limit lets this many messages in total have moved."""
        left = self._time_of(count) - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)

    def _time_of(self, count: int) -> float:
        return self._started_at if self._rate is None else self._started_at + count / self._rate


async def _chunks(batches: AsyncIterator[list[SelectedMessage]], size: int) -> AsyncIterator[Sequence[SelectedMessage]]:
    async for batch in batches:
        for start in range(0, max(1, len(batch)), size):
            yield batch[start : start + size]


async def _batches(broker: Broker, queue: Queue, selection: MessageSelection) -> AsyncIterator[list[SelectedMessage]]:
    """Yield batches of the selected messages that existed at the start; each read waits for its turn.

    A read without a match yields an empty batch. Messages that are sent later are left out: otherwise a scan without a
    match would never catch up with fast senders.
    """
    after, newest = 0, await broker.store.last_sequence_number()
    left = selection.limit
    while left is None or left > 0:
        batch = await read_filtered(
            broker, selection.message_filter, partial(_read, broker, queue, selection.states, after, newest)
        )
        if batch.last is None:
            return
        after = batch.last.sequence_number
        chosen = [one for one in batch.matches if one.weight - MESSAGE_OVERHEAD_BYTES <= selection.max_message_bytes][
            :left
        ]
        if left is not None:
            left -= len(chosen)
        yield chosen


async def _read(
    broker: Broker, queue: Queue, states: Sequence[MessageState], after: int, newest: int
) -> list[MessageMetadata]:
    messages = await broker.store.browse_metadata(queue.id, states, after, BATCH_SIZE)
    return [one for one in messages if one.sequence_number <= newest]


def _withdrawal(queue: Queue, message: SelectedMessage) -> Withdrawal:
    row = UnlockedRow(message.sequence_number, queue.id, message.state)
    return Withdrawal(row, queue.name, Outcome.PURGED, queue.settings.archive_retention)


def _removal(queue: Queue, message: SelectedMessage) -> Removal:
    return Removal(token_of(message), queue.id, queue.name, Outcome.PURGED, queue.settings.archive_retention, ANY_LOCK)


def _redrive(message: SelectedMessage, to_queue: Queue) -> Redrive:
    return Redrive(UnlockedRow(message.sequence_number, message.queue_id, message.state), to_queue.id)
