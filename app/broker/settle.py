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

from app.broker.broker import Broker
from app.broker.expire import release_expired
from app.broker.notify_receivers import notify_moved
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
    MAX_GENERATION,
    NO_EXPIRED_GENERATION,
    LockedMessage,
    LockToken,
    Move,
    Outcome,
    Removal,
    Settled,
    fence_above,
)

Settlement: TypeAlias = Removal | Move

MAX_TRIES = 10
"""Each look but the last means that another request holds the row or has just changed it."""

FIRST_PAUSE_SECONDS = 0.005
"""The pause before the third look. Each pause is twice as long as the one before, and all last 1.3 seconds."""


@dataclass(frozen=True, slots=True)
class PendingSettlement:
    """An ending that follows from facts of the row, which cannot change while the token holds it."""

    token: LockToken
    outcome: Outcome
    build: Callable[[LockedMessage], Settlement]


SettlementRequest: TypeAlias = Settlement | PendingSettlement
SettleResult: TypeAlias = Settled | Refusal | MessageBusy

LOSS_CAUSES = {
    Outcome.LOCK_EXPIRED: LossCause.EXPIRED,
    Outcome.RELEASED: LossCause.EXPIRED,
    Outcome.ENTITY_CHANGED: LossCause.ENTITY_CHANGED,
    Outcome.PURGED: LossCause.ADMINISTRATOR,
    Outcome.CANCELLED: LossCause.ADMINISTRATOR,
}


async def settle(broker: Broker, queue: Queue, requests: Sequence[SettlementRequest]) -> list[SettleResult]:
    """End these deliveries; each has its own answer, in order."""
    formed = await _build_all(broker, queue, requests)
    ended = iter(await _settle_all(broker, queue, [one for one in formed if isinstance(one, Removal | Move)]))
    answers: list[SettleResult] = []
    for request, one in zip(requests, formed, strict=True):
        if isinstance(one, Refusal):
            answers.append(one)
        elif one is None:
            answers.append(await resolve_late(broker, queue, request.token, request.outcome))
        else:
            answers.append(next(ended))
    return answers


async def settle_one(broker: Broker, queue: Queue, request: SettlementRequest) -> Settled:
    """End one delivery. Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound` or `MessageBusy`."""
    (answer,) = await settle(broker, queue, [request])
    if isinstance(answer, Refusal | MessageBusy):
        raise answer
    return answer


async def _build_all(
    broker: Broker, queue: Queue, requests: Sequence[SettlementRequest]
) -> list[Settlement | Refusal | None]:
    """The endings, formed from the facts where they are needed; None where the token holds nothing any more."""
    pending = [request for request in requests if isinstance(request, PendingSettlement)]
    if not pending:
        return [request for request in requests if not isinstance(request, PendingSettlement)]
    facts = iter(await broker.store.locked_messages([request.token for request in pending]))
    return [
        _build(request, next(facts), queue) if isinstance(request, PendingSettlement) else request
        for request in requests
    ]


def _build(request: PendingSettlement, held: LockedMessage | None, queue: Queue) -> Settlement | Refusal | None:
    if held is None or held.queue_id != queue.id:
        return None
    try:
        return request.build(held)
    except Refusal as refusal:
        return refusal


async def _settle_all(broker: Broker, queue: Queue, settlements: Sequence[Settlement]) -> list[SettleResult]:
    applied = await _apply(broker, settlements)
    failed = [index for index, effective in enumerate(applied) if not effective]
    answers: list[SettleResult] = [_settled(settlement) for settlement in settlements]
    if failed:
        looks = await asyncio.gather(*(_settle_again(broker, queue, settlements[index]) for index in failed))
        for index, answer in zip(failed, looks, strict=True):
            answers[index] = answer
    _notify_moves(broker, settlements, answers)
    return answers


async def resolve_late(broker: Broker, queue: Queue, token: LockToken, requested: Outcome | None) -> Settled | Refusal:
    """The answer to an ending that came too late, from what is remembered of the delivery."""
    (tombstone,) = await broker.store.tombstones([token])
    if tombstone is None or tombstone.queue_id != queue.id:
        return MessageNotFound("No delivery with this lock token is known in this queue.")
    if tombstone.outcome is requested:
        return Settled(token.sequence_number, tombstone.outcome, tombstone.state, replayed=True)
    if cause := LOSS_CAUSES.get(tombstone.outcome):
        return LockLost(cause, tombstone.settled_at, await broker.store.delivered_since(tombstone))
    return AlreadySettled(tombstone.outcome)


async def release_lost(broker: Broker, held: LockedMessage, evidence: int) -> LockLost | None:
    """Free a row whose lock has ended, so that no older copy of this request can still succeed.

    None when the lock has not ended, or when somebody else was faster with the row: then it must be
    looked at anew, because a copy of this very request may have settled it.
    """
    if held.is_live and held.lock_generation != evidence:
        return None
    (freed,) = await release_expired(broker, [(held, evidence)])
    if not freed:
        return None
    return LockLost(LossCause.EXPIRED, min(held.locked_until, held.read_at), delivered_again=False)


async def _apply(broker: Broker, settlements: Sequence[Settlement]) -> list[bool]:
    """Try all endings at once; removals and moves are different statements."""
    removals = [settlement for settlement in settlements if isinstance(settlement, Removal)]
    moves = [settlement for settlement in settlements if isinstance(settlement, Move)]
    if not moves:
        return await broker.store.remove(removals) if removals else []
    if not removals:
        return await broker.store.move(moves)
    removed, moved = map(iter, await asyncio.gather(broker.store.remove(removals), broker.store.move(moves)))
    return [next(removed if isinstance(settlement, Removal) else moved) for settlement in settlements]


async def pause_before_retry(broker: Broker, try_number: int) -> None:
    """Pause before another look at a row that another request holds; there is none before the second look."""
    if try_number:
        await broker.clock.sleep(FIRST_PAUSE_SECONDS * 2 ** (try_number - 1))


async def _settle_again(broker: Broker, queue: Queue, settlement: Settlement) -> SettleResult:
    """Why the ending had no effect at once; looks again when another request held or changed the row in between.

    Only the tombstone decides what happened, and it is read after the row was seen to be free.
    """
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(broker, try_number - 1)
        (held,) = await broker.store.locked_messages([settlement.token])
        if held is None or held.queue_id != queue.id:
            return await resolve_late(broker, queue, settlement.token, settlement.outcome)
        evidence = NO_EXPIRED_GENERATION
        if held.is_live:
            (evidence,) = await broker.lock_store.expired_generations([settlement.token])
            (effective,) = await _apply(broker, [replace(settlement, fence=fence_above(evidence))])
            if effective:
                await broker.lock_store.delete_records([(settlement.token, MAX_GENERATION)])
                return _settled(settlement)
        if lost := await release_lost(broker, held, evidence):
            return lost
    return MessageBusy()


def _settled(settlement: Settlement) -> Settled:
    state = settlement.state if isinstance(settlement, Move) else None
    return Settled(settlement.token.sequence_number, settlement.outcome, state)


def _notify_moves(broker: Broker, settlements: Sequence[Settlement], answers: Sequence[SettleResult]) -> None:
    moves: list[Move] = []
    effective: list[bool] = []
    for settlement, answer in zip(settlements, answers, strict=True):
        if isinstance(settlement, Move):
            moves.append(settlement)
            effective.append(isinstance(answer, Settled) and not answer.replayed)
    notify_moved(broker, moves, effective)
