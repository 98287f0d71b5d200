"""Redrive: make many dead-lettered messages available in batches, each fenced by the state that was read."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from math import inf

from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.select_messages import MessageSelection, select_batches
from app.broker.notify_receivers import StateChange
from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.sending.target_queue import free_capacity, queue_full, with_current_queue
from app.domain.message import MessageState, SelectedMessage
from app.domain.queue import Queue, check_send_enabled
from app.domain.refusals import QueueFull, QueueNotFound, SendDisabled, invalid_at
from app.runtime.clock import Clock


async def redrive(
    ports: AdministrationPorts,
    queue: Queue,
    to_queue: Queue,
    selection: MessageSelection,
    rate: float | None,
    timeout_seconds: float = inf,
) -> int:
    """Make selected dead-lettered messages available with counts of 0; return how many before the timeout.

    A redrive that has found no message continues past the timeout, as a purge does. It moves at most `rate` messages
    per second (None: no limit). The limit also holds over successive calls, because the response waits until the next
    message may move. Another queue receives only as many messages as it has room for, and none that is too large for
    it. Refuses with `InvalidRequest` a rate at which one message takes longer than the timeout, with `SendDisabled` as
    a send does, with `QueueFull` if the target has no room, and with `Overloaded` if too many requests with a filter
    read. After the first message has moved, a target that becomes full, is deleted or refuses sends ends the redrive.
    """
    check_send_enabled(to_queue)
    check_rate(rate, timeout_seconds)
    rate_limiter = _RateLimiter(ports.clock, rate, timeout_seconds, selection.batch_size)
    batches = select_batches(ports, queue, redrivable(selection, queue, to_queue))
    moved = 0
    try:
        with ports.searches.admit(selection.message_filter):
            async for chunk in _chunks(batches, rate_limiter.burst_size):
                if moved and not rate_limiter.has_time_for(moved + len(chunk)):
                    break
                if chunk:
                    act = partial(_redrive_batch, ports, chunk)
                    moved += await with_current_queue(ports.queue_cache, to_queue, act)
                await rate_limiter.wait(moved)
    except (QueueFull, QueueNotFound, SendDisabled):
        if not moved:
            raise
    finally:
        ports.counters.count("messages_redriven", moved)
    return moved


def check_rate(rate: float | None, timeout_seconds: float) -> None:
    """Refuse with `InvalidRequest` a rate at which not even one message moves before the timeout."""
    if rate is not None and 1 / rate > timeout_seconds:
        detail = f"Not one message goes at this rate in the {timeout_seconds:g} seconds that an answer may take."
        raise invalid_at("/rate_per_second", detail)


def redrivable(selection: MessageSelection, queue: Queue, to_queue: Queue) -> MessageSelection:
    """Leave out messages that are too large for another queue."""
    if to_queue.id == queue.id:
        return selection
    return replace(selection, max_message_bytes=to_queue.settings.max_message_bytes)


async def _redrive_batch(ports: AdministrationPorts, chunk: Sequence[SelectedMessage], to_queue: Queue) -> int:
    """Redrive the first messages, as many as the target has room for; return how many.

    Messages that stay in their own queue need no room. Refuses with `QueueFull` if none fits, or with `SendDisabled`.
    """
    check_send_enabled(to_queue)
    is_same_queue = chunk[0].queue_id == to_queue.id
    fitting = chunk if is_same_queue else chunk[: await free_capacity(ports.store.queues, to_queue, len(chunk))]
    if not fitting:
        raise queue_full(to_queue)
    moved = await ports.store.redrive([_redrive(message, to_queue) for message in fitting])
    ports.receivers.notify(
        StateChange(to_queue.id, message.sequence_number, MessageState.AVAILABLE)
        for message in compress(fitting, moved)
    )
    return sum(moved)


class _RateLimiter:
    """Limits how many messages a redrive moves a second, and until when."""

    def __init__(self, clock: Clock, rate: float | None, timeout_seconds: float, batch_size: int) -> None:
        self._clock = clock
        self._rate = rate
        self._started_at = clock.monotonic()
        self._deadline = self._started_at + timeout_seconds
        self.burst_size = batch_size if rate is None else max(1, int(rate * min(1.0, timeout_seconds)))
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


def _redrive(message: SelectedMessage, to_queue: Queue) -> Redrive:
    return Redrive(UnlockedRow(message.sequence_number, message.queue_id, message.state), to_queue.id)
