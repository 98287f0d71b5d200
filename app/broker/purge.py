"""Purge and redrive: many messages at once, in bounded batches, each fenced by the state it was seen in."""

import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import inf

from app.broker.announce import Arrival, announce
from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.fullness import full, how_many_fit
from app.broker.looks import look_through
from app.broker.ports import Redrive, Unlocked, Withdrawal
from app.broker.present import where_present
from app.broker.searches import LARGEST_LOOK
from app.domain.message import Chosen, MessageState, Outline
from app.domain.queue import Queue, allow_send
from app.domain.refusals import Fault, InvalidRequest, QueueFull
from app.domain.settlement import ANY_LOCK, HIGHEST_GENERATION, Outcome, Removal, token_of
from app.domain.weight import ROW_BYTES
from app.runtime.clock import Clock

BATCH_SIZE = LARGEST_LOOK
"""Messages per statement: a purge of millions never holds more than this many rows."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages: in these states, let through by the filter, at most `limit` of them (None: all).

    None whose body and properties together have more than `largest` bytes is among them.
    """

    states: Sequence[MessageState]
    matching: Filter
    limit: int | None = None
    largest: int = sys.maxsize


async def purge(broker: Broker, queue: Queue, choice: Choice, patience_seconds: float = inf) -> int:
    """Remove the chosen messages to the archive as purged; how many went before the patience was at its end.

    A walk that has found none yet goes on until it finds one, because an answer of 0 says that none is left.
    Locked messages are removed only if `locked` is among the states, even when their lock has ended and is not swept
    yet: their holders get `lock-lost` with the cause `settled_by_administrator`. A message that another request holds
    at this moment stays.
    """
    removed = 0
    deadline = broker.clock.monotonic() + patience_seconds
    async for batch in _batches(broker, queue, choice):
        removed += await _purge_unlocked(broker, queue, [m for m in batch if m.state is not MessageState.LOCKED])
        removed += await _purge_locked(broker, queue, [m for m in batch if m.state is MessageState.LOCKED])
        if removed and broker.clock.monotonic() >= deadline:
            break
    broker.tally.count("messages_purged", removed)
    return removed


async def _purge_unlocked(broker: Broker, queue: Queue, messages: Sequence[Chosen]) -> int:
    withdrawals = [_withdrawal(queue, message) for message in messages]
    return sum(await broker.store.withdraw(withdrawals)) if withdrawals else 0


async def _purge_locked(broker: Broker, queue: Queue, messages: Sequence[Chosen]) -> int:
    removals = [_removal(queue, message) for message in messages]
    if not removals:
        return 0
    removed = sum(await broker.store.remove_locked(queue.id, removals))
    if removed:
        broker.catalogue.forget(queue)
        broker.bells.queues_changed()
        # A process that remembers the queue as it was could still prolong a lock that is gone by its record.
        await broker.locks.drop([(removal.token, HIGHEST_GENERATION) for removal in removals])
    return removed


async def redrive(
    broker: Broker, queue: Queue, to_queue: Queue, choice: Choice, rate: float | None, patience_seconds: float = inf
) -> int:
    """Send chosen dead-lettered messages back to work, counts anew; how many before the patience was at its end.

    A walk that has found none yet goes on, as that of a purge does.
    At most `rate` a second (None: no limit), also over calls one after the other, because the answer waits until the
    next message may go. Into another queue go no more than fit, and none that is too large for it. Refuses with
    `InvalidRequest` a rate at which one message takes longer than the patience, with `SendDisabled` as a send does, and
    with `QueueFull` where there is room for none.
    """
    allow_send(to_queue)
    if to_queue.id != queue.id:
        choice = replace(choice, largest=to_queue.settings.max_message_bytes)
    pace = _Pace(broker.clock, rate, patience_seconds)
    moved = 0
    try:
        async for piece in _pieces(_batches(broker, queue, choice), pace.size):
            if moved and not pace.has_time_for(moved + len(piece)):
                break
            if piece:
                send_back = partial(_send_back, broker, piece)
                moved += await where_present(broker, to_queue, send_back, broker.catalogue.named)
            await pace.keep(moved)
    except QueueFull:
        if not moved:
            raise
    broker.tally.count("messages_redriven", moved)
    return moved


async def _send_back(broker: Broker, piece: Sequence[Chosen], to_queue: Queue) -> int:
    """Those that fit, the first of them; how many went. Refuses with `QueueFull` where none does, or `SendDisabled`.

    What goes back to its own queue has its place there already.
    """
    allow_send(to_queue)
    is_there_already = piece[0].queue_id == to_queue.id
    fitting = piece if is_there_already else piece[: await how_many_fit(broker, to_queue, len(piece))]
    if not fitting:
        raise full(to_queue)
    moved = await broker.store.redrive([_redrive(message, to_queue) for message in fitting])
    announce(
        broker,
        (Arrival(to_queue.id, one.sequence_number, MessageState.AVAILABLE) for one in compress(fitting, moved)),
    )
    return sum(moved)


class _Pace:
    """How fast messages may go back, and until when.

    Refuses with `InvalidRequest` a rate that cannot be kept, because not one message may go before the end.
    """

    def __init__(self, clock: Clock, rate: float | None, patience_seconds: float) -> None:
        if rate is not None and 1 / rate > patience_seconds:
            detail = f"Not one message goes at this rate in the {patience_seconds:g} seconds that an answer may take."
            raise InvalidRequest(faults=[Fault("/rate_per_second", detail)])
        self._clock = clock
        self._rate = rate
        self._begun = clock.monotonic()
        self._deadline = self._begun + patience_seconds
        self.size = BATCH_SIZE if rate is None else max(1, int(rate * min(1.0, patience_seconds)))
        """Messages that may go at once: a second's worth."""

    def has_time_for(self, count: int) -> bool:
        """Whether so many, since the beginning, may have gone before the end."""
        return max(self._after(count), self._clock.monotonic()) < self._deadline

    async def keep(self, count: int) -> None:
        """Return once so many may have gone."""
        left = self._after(count) - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)

    def _after(self, count: int) -> float:
        return self._begun if self._rate is None else self._begun + count / self._rate


async def _pieces(batches: AsyncIterator[list[Chosen]], size: int) -> AsyncIterator[Sequence[Chosen]]:
    async for batch in batches:
        for start in range(0, max(1, len(batch)), size):
            yield batch[start : start + size]


async def _batches(broker: Broker, queue: Queue, choice: Choice) -> AsyncIterator[list[Chosen]]:
    """The chosen messages among those that were there when the walk began, by looks that are metered as all others.

    A look of which none is chosen gives an empty batch. What is sent later is left out, or a walk that finds none would
    follow fast senders without end.
    """
    after, newest = 0, await broker.store.newest_number()
    left = choice.limit
    while left is None or left > 0:
        look = await look_through(broker, choice.matching, partial(_read, broker, queue, choice.states, after, newest))
        if look.last is None:
            return
        after = look.last.sequence_number
        chosen = [one for one in look.matches if one.weight - ROW_BYTES <= choice.largest][:left]
        if left is not None:
            left -= len(chosen)
        yield chosen


async def _read(broker: Broker, queue: Queue, states: Sequence[MessageState], after: int, newest: int) -> list[Outline]:
    outlines = await broker.store.outlines(queue.id, states, after, BATCH_SIZE)
    return [one for one in outlines if one.sequence_number <= newest]


def _withdrawal(queue: Queue, message: Chosen) -> Withdrawal:
    row = Unlocked(message.sequence_number, queue.id, message.state)
    return Withdrawal(row, queue.name, Outcome.PURGED, queue.settings.archive_retention)


def _removal(queue: Queue, message: Chosen) -> Removal:
    return Removal(token_of(message), queue.id, queue.name, Outcome.PURGED, queue.settings.archive_retention, ANY_LOCK)


def _redrive(message: Chosen, to_queue: Queue) -> Redrive:
    return Redrive(Unlocked(message.sequence_number, message.queue_id, message.state), to_queue.id)
