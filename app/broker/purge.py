"""Purge and redrive: many messages at once, in bounded bites, each fenced by the state it was seen in."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.ports import Redrive, Unlocked, Withdrawal
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, allow_send
from app.domain.settlement import NO_EVIDENCE, LockToken, Outcome, Removal, cleared

BITE = 500
"""Messages per statement: a purge of millions never holds more than this many rows."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages: in these states, let through by the filter, at most `limit` of them (None: all)."""

    states: Sequence[MessageState]
    matching: Filter
    limit: int | None = None


async def purge(broker: Broker, queue: Queue, choice: Choice) -> int:
    """Remove the chosen messages to the archive as purged; how many went.

    Locked ones go only where `locked` is among the states: their holders hear `lock-lost` with the
    cause `settled_by_administrator`.
    """
    removed = 0
    async for bite in _bites(broker, queue, choice):
        locked = [message for message in bite if message.state is MessageState.LOCKED]
        unlocked = [message for message in bite if message.state is not MessageState.LOCKED]
        removed += sum(await broker.store.withdraw([_withdrawal(queue, message) for message in unlocked]))
        removed += sum(await broker.store.remove([_removal(queue, message) for message in locked]))
    broker.tally.count("messages_purged", removed)
    return removed


async def redrive(broker: Broker, queue: Queue, to_queue: Queue, choice: Choice, rate: float | None) -> int:
    """Send chosen dead-lettered messages back to work, counts anew, at most `rate` a second; how many."""
    allow_send(to_queue)
    moved = 0
    async for bite in _bites(broker, queue, choice):
        started = broker.clock.monotonic()
        effective = sum(await broker.store.redrive([_redrive(message, to_queue) for message in bite]))
        broker.bells.ring(to_queue.id, effective)
        moved += effective
        if rate is not None:
            await broker.clock.sleep(max(0.0, effective / rate - (broker.clock.monotonic() - started)))
    broker.tally.count("messages_redriven", moved)
    return moved


async def _bites(broker: Broker, queue: Queue, choice: Choice) -> AsyncIterator[list[Message]]:
    """The chosen messages that were there when the walk began to pass them, a bite at a time."""
    after = 0
    left = choice.limit
    while left is None or left > 0:
        seen = await broker.store.browse(queue.id, choice.states, after, BITE)
        if not seen:
            return
        after = seen[-1].sequence_number
        chosen = (await choice.matching.select(seen))[:left]
        if left is not None:
            left -= len(chosen)
        if chosen:
            yield chosen


def _withdrawal(queue: Queue, message: Message) -> Withdrawal:
    row = Unlocked(message.sequence_number, queue.id, message.state)
    return Withdrawal(row, queue.name, Outcome.PURGED, queue.settings.archive_retention)


def _removal(queue: Queue, message: Message) -> Removal:
    token = LockToken(message.sequence_number, message.lock_token or b"")
    return Removal(token, queue.id, queue.name, Outcome.PURGED, queue.settings.archive_retention, cleared(NO_EVIDENCE))


def _redrive(message: Message, to_queue: Queue) -> Redrive:
    return Redrive(Unlocked(message.sequence_number, message.queue_id, message.state), to_queue.id)
