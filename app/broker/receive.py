"""Receive: the next messages, each under a lock that only its token can end.

Crash windows: before the claim's commit nothing happened; after it the messages are locked and, if
nobody hears of them, come back when their locks run out. A receiver that has gone before its answer
began gives them back at once, uncounted. While waiting nothing is held: no transaction and no row.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.ports import Attempt, Once
from app.domain.delivery import Claim
from app.domain.instant import Duration
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, allow_receive
from app.domain.settlement import (
    LIMIT_REACHED,
    LockToken,
    Move,
    Outcome,
    Removal,
    is_poison,
)

LARGEST_LOOK = 500
"""How many messages a filtered receive reads at a time while it looks for matches."""

Take = Callable[[Claim], Awaitable[list[Message]]]


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
    claim = _claim(queue, wish)
    take = _how_to_take(broker, queue, wish)
    if wish.patience_seconds <= 0 or wish.numbers:
        return await _deliverable(broker, queue, claim, take)
    return await _wait(broker, queue, claim, take, wish.patience_seconds)


async def receive_once(broker: Broker, queue: Queue, wish: Wish, attempt: Attempt) -> Once[list[Message]]:
    """`receive`, with effect only the first time the attempt is made.

    A repeat answers the same messages with the same tokens where those locks still live. An attempt
    is made when there is something to receive or the patience is at its end, so that a repeat of an
    attempt that was cut while waiting still waits.
    """
    allow_receive(queue)
    claim = _claim(queue, wish)
    deadline = broker.clock.monotonic() + wish.patience_seconds
    with broker.waiting.waiter(_line(claim)) as waiter:
        while True:
            once = await broker.store.claim_once(claim, attempt)
            if once.replayed or once.answer:
                waiter.used()
                return once
            if not await waiter.rung(deadline - broker.clock.monotonic()):
                return once


async def receive_and_delete(broker: Broker, queue: Queue, wish: Wish) -> list[Message]:
    """Messages that are out of the queue before they are answered (S3.11, S3.12).

    Whoever dies between here and the receiver loses them; they are in the archive as `received`.
    """
    messages = await receive(broker, queue, wish)
    removals = [
        Removal(_token(message), queue.id, queue.name, Outcome.RECEIVED, queue.settings.archive_retention)
        for message in messages
    ]
    removed = await broker.store.remove(removals) if removals else []
    return [
        replace(message, lock_token=None, locked_until=None)
        for message, gone in zip(messages, removed, strict=True)
        if gone
    ]


async def give_back(broker: Broker, messages: Sequence[Message]) -> None:
    """Free messages whose receiver has gone before it was answered: uncounted, in their old place."""
    moves = [
        Move(_token(message), message.queue_id, Outcome.RELEASED, message.home_state)
        for message in messages
        if message.lock_token is not None
    ]
    if moves:
        await broker.store.move(moves)
        broker.bells.ring(messages[0].queue_id, len(moves))


def _claim(queue: Queue, wish: Wish) -> Claim:
    return Claim(
        queue_id=queue.id,
        most=wish.most,
        lock_duration=wish.lock_duration or queue.settings.lock_duration,
        receiver_id=wish.receiver_id,
        source=MessageState.DEFERRED if wish.numbers else wish.source,
    )


def _line(claim: Claim) -> int:
    """Where receivers wait: for the queue, or apart from those for its dead-letter queue."""
    return claim.queue_id if claim.source is MessageState.AVAILABLE else -claim.queue_id


def _how_to_take(broker: Broker, queue: Queue, wish: Wish) -> Take:
    if wish.numbers:
        return lambda claim: broker.store.claim_these(claim, wish.numbers)
    if wish.matching is not None:
        matching = wish.matching
        return lambda claim: _take_matching(broker, queue, claim, matching)
    return broker.store.claim


async def _take_matching(broker: Broker, queue: Queue, claim: Claim, matching: Filter) -> list[Message]:
    """Look through the queue in bites and claim what matches, until there is enough or no more."""
    taken: list[Message] = []
    after = 0
    while len(taken) < claim.most:
        seen = await broker.store.browse(queue.id, [claim.source], after, LARGEST_LOOK)
        if not seen:
            break
        after = seen[-1].sequence_number
        numbers = [message.sequence_number for message in await matching.select(seen)]
        wanted = replace(claim, most=claim.most - len(taken))
        taken += await broker.store.claim_these(wanted, numbers[: wanted.most])
    return taken


async def _wait(broker: Broker, queue: Queue, claim: Claim, take: Take, patience: float) -> list[Message]:
    deadline = broker.clock.monotonic() + patience
    with broker.waiting.waiter(_line(claim)) as waiter:
        while True:
            if messages := await _deliverable(broker, queue, claim, take):
                waiter.used()
                if len(messages) == claim.most:
                    # There may be more than one ring told of: let the next in line look too.
                    broker.waiting.ring(_line(claim))
                return messages
            if not await waiter.rung(deadline - broker.clock.monotonic()):
                return []


async def _deliverable(broker: Broker, queue: Queue, claim: Claim, take: Take) -> list[Message]:
    """Claim, set aside what has been handed out too often, and claim again if nothing else was left."""
    while messages := await take(claim):
        poison = [message for message in messages if is_poison(message, queue.settings)]
        if not poison:
            return messages
        await _bury(broker, poison)
        if len(poison) < len(messages):
            return [message for message in messages if message not in poison]
    return []


async def _bury(broker: Broker, poison: Sequence[Message]) -> None:
    moves = [
        Move(
            _token(message),
            message.queue_id,
            Outcome.DEAD_LETTERED,
            MessageState.DEAD_LETTERED,
            dead_letter_reason=LIMIT_REACHED,
            dead_letter_description=f"Handed out {message.delivery_count} times; its receivers never came back.",
        )
        for message in poison
    ]
    await broker.store.move(moves)
    broker.tally.count("poison_dead_lettered", len(moves))


def _token(message: Message) -> LockToken:
    return LockToken(message.sequence_number, message.lock_token or b"")
