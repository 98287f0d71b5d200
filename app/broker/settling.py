"""The one road by which a holder ends its delivery, whatever the verb.

First the ending is tried as if no renewal had ever touched the lock: then there can be no evidence
against it and the lock store need not be asked. Where that fails, a second look finds out why. If a
renewed lock stands in SQL, the lock store is asked whether it ended early, and the ending is tried
again above that evidence. Otherwise what is remembered of the delivery decides: the same verb hears
its first answer again, another verb hears how it ended, and a lock that ran out is lost for good.
A row that another transaction holds is tried again for a second or so; then its own ending fails, and
no other.

Crash windows: a process that dies before the commit has changed nothing; after it, the tombstone
answers the repeat. A lock record left behind in the lock store speaks of a token nobody holds.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.broker.announce import announce_moved
from app.broker.broker import Broker
from app.broker.expire import free
from app.domain.queue import Queue
from app.domain.refusals import (
    AlreadySettled,
    LockLost,
    LossCause,
    MessageBusy,
    MessageNotFound,
    Refusal,
)
from app.domain.settlement import (
    HIGHEST_GENERATION,
    NO_EVIDENCE,
    Held,
    LockToken,
    Move,
    Outcome,
    Removal,
    Settled,
    cleared,
)

Ending: TypeAlias = Removal | Move

MOST_LOOKS = 10
"""Each look but the last means that another request holds the row or has just changed it."""

FIRST_PAUSE_SECONDS = 0.005
"""The pause before the third look. Each pause is twice as long as the one before, and all last 1.3 seconds."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An ending that follows from facts of the row, which cannot change while the token holds it."""

    token: LockToken
    outcome: Outcome
    form: Callable[[Held], Ending]


Ask: TypeAlias = Ending | Pending
Answer: TypeAlias = Settled | Refusal | MessageBusy

LOSS_CAUSES = {
    Outcome.LOCK_EXPIRED: LossCause.EXPIRED,
    Outcome.RELEASED: LossCause.EXPIRED,
    Outcome.ENTITY_CHANGED: LossCause.ENTITY_CHANGED,
    Outcome.PURGED: LossCause.ADMINISTRATOR,
    Outcome.CANCELLED: LossCause.ADMINISTRATOR,
}


async def settle(broker: Broker, queue: Queue, asks: Sequence[Ask]) -> list[Answer]:
    """End these deliveries; each has its own answer, in order."""
    formed = await _form(broker, queue, asks)
    ended = iter(await _end(broker, queue, [one for one in formed if isinstance(one, Removal | Move)]))
    answers: list[Answer] = []
    for ask, one in zip(asks, formed, strict=True):
        if isinstance(one, Refusal):
            answers.append(one)
        elif one is None:
            answers.append(await what_happened(broker, queue, ask.token, ask.outcome))
        else:
            answers.append(next(ended))
    return answers


async def settle_one(broker: Broker, queue: Queue, ask: Ask) -> Settled:
    """End one delivery. Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound` or `MessageBusy`."""
    (answer,) = await settle(broker, queue, [ask])
    if isinstance(answer, Refusal | MessageBusy):
        raise answer
    return answer


async def _form(broker: Broker, queue: Queue, asks: Sequence[Ask]) -> list[Ending | Refusal | None]:
    """The endings, formed from the facts where they are needed; None where the token holds nothing any more."""
    pending = [ask for ask in asks if isinstance(ask, Pending)]
    if not pending:
        return [ask for ask in asks if not isinstance(ask, Pending)]
    facts = iter(await broker.store.held([ask.token for ask in pending]))
    return [_formed(ask, next(facts), queue) if isinstance(ask, Pending) else ask for ask in asks]


def _formed(ask: Pending, held: Held | None, queue: Queue) -> Ending | Refusal | None:
    if held is None or held.queue_id != queue.id:
        return None
    try:
        return ask.form(held)
    except Refusal as refusal:
        return refusal


async def _end(broker: Broker, queue: Queue, endings: Sequence[Ending]) -> list[Answer]:
    took = await _apply(broker, endings)
    late = [place for place, effective in enumerate(took) if not effective]
    answers: list[Answer] = [_settled(ending) for ending in endings]
    if late:
        looks = await asyncio.gather(*(_second_look(broker, queue, endings[place]) for place in late))
        for place, answer in zip(late, looks, strict=True):
            answers[place] = answer
    _announce(broker, endings, answers)
    return answers


async def what_happened(broker: Broker, queue: Queue, token: LockToken, asked: Outcome | None) -> Settled | Refusal:
    """The answer to an ending that came too late, from what is remembered of the delivery."""
    (stone,) = await broker.store.tombstones([token])
    if stone is None or stone.queue_id != queue.id:
        return MessageNotFound("No delivery with this lock token is known in this queue.")
    if stone.outcome is asked:
        return Settled(token.sequence_number, stone.outcome, stone.state, replayed=True)
    if cause := LOSS_CAUSES.get(stone.outcome):
        return LockLost(cause, stone.settled_at, await broker.store.delivered_since(stone))
    return AlreadySettled(stone.outcome)


async def lose(broker: Broker, held: Held, evidence: int) -> LockLost | None:
    """Free a row whose lock has ended, so that no older copy of this request can still succeed.

    None when the lock has not ended, or when somebody else was faster with the row: then it must be
    looked at anew, because a copy of this very request may have settled it.
    """
    if held.is_live and held.lock_generation != evidence:
        return None
    (freed,) = await free(broker, [(held, evidence)])
    if not freed:
        return None
    return LockLost(LossCause.EXPIRED, min(held.locked_until, held.read_at), delivered_again=False)


async def _apply(broker: Broker, endings: Sequence[Ending]) -> list[bool]:
    """Try all endings at once; removals and moves are different statements."""
    removals = [ending for ending in endings if isinstance(ending, Removal)]
    moves = [ending for ending in endings if isinstance(ending, Move)]
    if not moves:
        return await broker.store.remove(removals) if removals else []
    if not removals:
        return await broker.store.move(moves)
    removed, moved = map(iter, await asyncio.gather(broker.store.remove(removals), broker.store.move(moves)))
    return [next(removed if isinstance(ending, Removal) else moved) for ending in endings]


async def let_others_end(broker: Broker, look: int) -> None:
    """Pause before another look at a row that another request holds; there is none before the second look."""
    if look:
        await broker.clock.sleep(FIRST_PAUSE_SECONDS * 2 ** (look - 1))


async def _second_look(broker: Broker, queue: Queue, ending: Ending) -> Answer:
    """Why the ending had no effect at once; looks again when another request held or changed the row in between.

    Only the tombstone decides what happened, and it is read after the row was seen to be free.
    """
    for look in range(MOST_LOOKS):
        if look:
            await let_others_end(broker, look - 1)
        (held,) = await broker.store.held([ending.token])
        if held is None or held.queue_id != queue.id:
            return await what_happened(broker, queue, ending.token, ending.outcome)
        evidence = NO_EVIDENCE
        if held.is_live:
            (evidence,) = await broker.locks.evidence([ending.token])
            (effective,) = await _apply(broker, [replace(ending, fence=cleared(evidence))])
            if effective:
                await broker.locks.drop([(ending.token, HIGHEST_GENERATION)])
                return _settled(ending)
        if lost := await lose(broker, held, evidence):
            return lost
    return MessageBusy()


def _settled(ending: Ending) -> Settled:
    state = ending.state if isinstance(ending, Move) else None
    return Settled(ending.token.sequence_number, ending.outcome, state)


def _announce(broker: Broker, endings: Sequence[Ending], answers: Sequence[Answer]) -> None:
    moves: list[Move] = []
    effective: list[bool] = []
    for ending, answer in zip(endings, answers, strict=True):
        if isinstance(ending, Move):
            moves.append(ending)
            effective.append(isinstance(answer, Settled) and not answer.replayed)
    announce_moved(broker, moves, effective)
