"""Receive: the next messages, each under a lock that only its token can end.

Crash windows: before the claim's commit nothing happened; after it the messages are locked and, if
nobody hears of them, come back when their locks run out. A receiver that has gone before its answer
began gives them back at once, uncounted, whatever was still to be done with them. While waiting
nothing is held: no transaction and no row.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.give_back import give_back
from app.broker.ports import Attempt, Once
from app.broker.renew import renew
from app.broker.search import receive_matching
from app.broker.settling import settle
from app.broker.waiting import woken
from app.domain.delivery import Claim, line_of
from app.domain.instant import Duration
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, allow_receive
from app.domain.refusals import MessageBusy, Refusal, StoreUnavailable
from app.domain.settlement import Outcome, Removal, Settled, token_of
from app.domain.weight import ROW_BYTES, weight_of
from app.runtime.bell import Waiter
from app.runtime.byte_budget import Room


@dataclass(frozen=True, slots=True)
class Wish:
    """What a receiver asks for: at most `most` messages, waiting up to `patience_seconds` for the first.

    `numbers` asks for deferred messages by sequence number; `matching` for those a filter lets through.
    """

    most: int = 1
    patience_seconds: float = 0.0
    lock_duration: Duration | None = None
    receiver_id: str | None = None
    source: MessageState = MessageState.AVAILABLE
    numbers: Sequence[int] = ()
    matching: Filter | None = None


async def receive(broker: Broker, queue: Queue, wish: Wish) -> list[Message]:
    """Messages under lock, in order; empty when none came in time. Refuses with `ReceiveDisabled`."""
    allow_receive(queue)
    if wish.matching is not None:
        return await receive_matching(broker, queue, _claim(broker, queue, wish), wish.matching, wish.patience_seconds)
    if wish.patience_seconds <= 0 or wish.numbers:
        return await _look(broker, queue, wish)
    deadline = broker.clock.monotonic() + wish.patience_seconds
    with broker.waiting.waiter(line_of(queue.id, wish.source)) as waiter:
        while True:
            messages = await _look(broker, queue, wish)
            _pass_on_wake_up(waiter, wish, messages, _largest_rest(broker, queue))
            if messages or not await woken(broker, queue, waiter, deadline):
                return messages


async def receive_once(broker: Broker, queue: Queue, wish: Wish, attempt: Attempt) -> Once[list[Message]]:
    """`receive`, with effect only the first time the attempt is made.

    A repeat answers the same messages with the same tokens where those locks still live, and renews those that were
    renewed before. An attempt is made when there is something to receive or the patience is at its end, so that a repeat of an
    attempt that was cut while waiting still waits.
    """
    allow_receive(queue)
    deadline = broker.clock.monotonic() + wish.patience_seconds
    with broker.waiting.waiter(line_of(queue.id, wish.source)) as waiter:
        while True:
            async with _room(broker, queue, wish):
                once = await broker.store.claim_once(_claim(broker, queue, wish), attempt)
            if once.replayed:
                # This receiver has not looked at the messages there are now; on leaving, its wake-up goes to the next
                # one. The first attempt may have locked messages of a queue of this name that is deleted: no token of
                # theirs can settle here.
                own = [message for message in once.answer if message.queue_id == queue.id]
                return Once(await _promised(broker, queue, wish, own), replayed=True)
            _pass_on_wake_up(waiter, wish, once.answer, _largest_rest(broker, queue))
            if once.answer or not await woken(broker, queue, waiter, deadline):
                return once


async def foresee(broker: Broker, queue: Queue, attempt: Attempt | None) -> None:
    """Refuse now what a receive would be refused for, before its caller does anything else in the same call.

    Refuses with `ReceiveDisabled` or `KeyReused`.
    """
    allow_receive(queue)
    if attempt is not None:
        await broker.store.check(attempt)


async def receive_and_delete(broker: Broker, queue: Queue, wish: Wish) -> list[Message]:
    """Messages that are out of the queue before they are answered (S3.11, S3.12).

    Whoever dies between here and the receiver loses them; they are in the archive as `received`.
    """
    messages = await receive(broker, queue, wish)
    removals = [
        Removal(token_of(message), queue.id, queue.name, Outcome.RECEIVED, queue.settings.archive_retention)
        for message in messages
    ]
    try:
        answers = await settle(broker, queue, removals)
    except (asyncio.CancelledError, StoreUnavailable):
        await give_back(broker, queue, messages)
        raise
    received: list[Message] = []
    busy: list[Message] = []
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, Settled):
            received.append(replace(message, lock_token=None, locked_until=None))
        elif isinstance(answer, MessageBusy):
            busy.append(message)
    await give_back(broker, queue, busy)
    return received


async def _promised(broker: Broker, queue: Queue, wish: Wish, messages: Sequence[Message]) -> list[Message]:
    """Those of these messages whose locks live, each with an end of its lock that is kept.

    For a lock that was renewed, SQL knows how far the lock store may prolong it, which is later than it may end. Only a
    renewal can tell its holder what is kept, so it is renewed once more.
    """
    held = await asyncio.gather(*(_renewed(broker, queue, wish, message) for message in messages))
    return [message for message in held if message is not None]


async def _renewed(broker: Broker, queue: Queue, wish: Wish, message: Message) -> Message | None:
    if not message.lock_generation:
        return message
    try:
        promise = await renew(broker, queue, token_of(message), wish.lock_duration)
    except Refusal:
        return None
    until = promise.locked_until
    return replace(message, locked_until=until, read_at=until - promise.duration, read_after=promise.counted_from)


def _claim(broker: Broker, queue: Queue, wish: Wish) -> Claim:
    return Claim(
        queue_id=queue.id,
        most=wish.most,
        lock_duration=wish.lock_duration or queue.settings.lock_duration,
        receiver_id=wish.receiver_id,
        source=MessageState.DEFERRED if wish.numbers else wish.source,
        budget=broker.largest_answer,
    )


def _largest_rest(broker: Broker, queue: Queue) -> int:
    """What messages may weigh that are answered without leaving out one for its size."""
    return broker.largest_answer - queue.settings.max_message_bytes - ROW_BYTES


def _pass_on_wake_up(waiter: Waiter[int], wish: Wish, messages: Sequence[Message], largest_rest: int) -> None:
    """A look that came up short has looked for all who wait; any other may have left more than it could take, or more
    than its answer has room for."""
    fits = not messages or sum(map(weight_of, messages)) <= largest_rest
    if len(messages) < wish.most and fits:
        waiter.used()
    else:
        waiter.hand_on()


async def _look(broker: Broker, queue: Queue, wish: Wish) -> list[Message]:
    """Claim once, without waiting for messages. Refuses with `Overloaded`."""
    claim = _claim(broker, queue, wish)
    async with _room(broker, queue, wish):
        if wish.numbers:
            return await broker.store.claim_these(claim, wish.numbers)
        return await broker.store.claim(claim)


def _room(broker: Broker, queue: Queue, wish: Wish) -> Room:
    """Room for as much as a claim may bring."""
    return broker.answers.room(min(broker.largest_answer, wish.most * (queue.settings.max_message_bytes + ROW_BYTES)))
