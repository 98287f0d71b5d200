"""Settle: the one path by which a holder ends its delivery, for every operation.

The settlement is first tried as if the lock had never been renewed: the lock store then has no record of it and need
not be asked. If that fails, a second try finds out why. If SQL holds a renewed lock, the lock store says whether it
ended early, and the settlement is tried again above the expired generation. Otherwise the tombstone of the delivery
decides: a repeat of the same settlement gets its first result, a different settlement learns how the delivery ended,
and an expired lock is lost for good. A row that another transaction holds is tried again for about a second; then only
its own settlement fails.

Crash windows: before the commit nothing has changed. After it, the tombstone answers a repeat. A lock record left in
the lock store belongs to a token that no receiver holds.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

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
"""How often a settlement is tried. Each failed try means that another request holds the row or has just changed it."""

FIRST_PAUSE_SECONDS = 0.005
"""The pause before the third try. Each pause is twice as long as the one before; together they last 1.3 seconds."""


@dataclass(frozen=True, slots=True)
class PendingSettlement:
    """A settlement that is built from the row, whose counts cannot change while the token holds it."""

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
    """Settle these deliveries; return a result for each, in order."""
    built = await _build_all(broker, queue, requests)
    settled = iter(await _settle_all(broker, queue, [one for one in built if isinstance(one, Removal | Move)]))
    answers: list[SettleResult] = []
    for request, one in zip(requests, built, strict=True):
        if isinstance(one, Refusal):
            answers.append(one)
        elif one is None:
            answers.append(await resolve_late(broker, queue, request.token, request.outcome))
        else:
            answers.append(next(settled))
    return answers


async def settle_one(broker: Broker, queue: Queue, request: SettlementRequest) -> Settled:
    """Settle one delivery. Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound` or `MessageBusy`."""
    (answer,) = await settle(broker, queue, [request])
    if isinstance(answer, Refusal | MessageBusy):
        raise answer
    return answer


async def _build_all(
    broker: Broker, queue: Queue, requests: Sequence[SettlementRequest]
) -> list[Settlement | Refusal | None]:
    """Build the settlements, from the locked rows if needed; None where the token no longer holds a message."""
    pending = [request for request in requests if isinstance(request, PendingSettlement)]
    if not pending:
        return [request for request in requests if not isinstance(request, PendingSettlement)]
    rows = iter(await broker.store.locked_messages([request.token for request in pending]))
    return [
        _build(request, next(rows), queue) if isinstance(request, PendingSettlement) else request
        for request in requests
    ]


def _build(request: PendingSettlement, locked: LockedMessage | None, queue: Queue) -> Settlement | Refusal | None:
    if locked is None or locked.queue_id != queue.id:
        return None
    try:
        return request.build(locked)
    except Refusal as refusal:
        return refusal


async def _settle_all(broker: Broker, queue: Queue, settlements: Sequence[Settlement]) -> list[SettleResult]:
    applied = await _apply(broker, settlements)
    failed = [index for index, effective in enumerate(applied) if not effective]
    answers: list[SettleResult] = [_settled(settlement) for settlement in settlements]
    if failed:
        retried = await asyncio.gather(*(_settle_again(broker, queue, settlements[index]) for index in failed))
        for index, answer in zip(failed, retried, strict=True):
            answers[index] = answer
    _notify_moves(broker, settlements, answers)
    return answers


async def resolve_late(broker: Broker, queue: Queue, token: LockToken, requested: Outcome | None) -> Settled | Refusal:
    """Return the result of a late settlement, from the tombstone of the delivery."""
    (tombstone,) = await broker.store.tombstones([token])
    if tombstone is None or tombstone.queue_id != queue.id:
        return MessageNotFound("No delivery with this lock token is known in this queue.")
    if tombstone.outcome is requested:
        return Settled(token.sequence_number, tombstone.outcome, tombstone.state, replayed=True)
    if cause := LOSS_CAUSES.get(tombstone.outcome):
        return LockLost(cause, tombstone.settled_at, await broker.store.delivered_since(tombstone))
    return AlreadySettled(tombstone.outcome)


async def release_lost(broker: Broker, locked: LockedMessage, expired_generation: int) -> LockLost | None:
    """Free a row whose lock has ended, so that no older copy of this request can still succeed.

    Returns None if the lock has not ended, or if another request changed the row first. Then the caller reads the row
    again, because a copy of the same request may have settled it.
    """
    if locked.is_live and locked.lock_generation != expired_generation:
        return None
    (freed,) = await release_expired(broker, [(locked, expired_generation)])
    if not freed:
        return None
    return LockLost(LossCause.EXPIRED, min(locked.locked_until, locked.read_at), delivered_again=False)


async def _apply(broker: Broker, settlements: Sequence[Settlement]) -> list[bool]:
    """Try all settlements at once; removals and moves use different statements."""
    removals = [settlement for settlement in settlements if isinstance(settlement, Removal)]
    moves = [settlement for settlement in settlements if isinstance(settlement, Move)]
    if not moves:
        return await broker.store.remove(removals) if removals else []
    if not removals:
        return await broker.store.move(moves)
    removed, moved = map(iter, await asyncio.gather(broker.store.remove(removals), broker.store.move(moves)))
    return [next(removed if isinstance(settlement, Removal) else moved) for settlement in settlements]


async def pause_before_retry(broker: Broker, try_number: int) -> None:
    """Pause before reading a row again that another request holds; the second try has no pause."""
    if try_number:
        await broker.clock.sleep(FIRST_PAUSE_SECONDS * 2 ** (try_number - 1))


async def _settle_again(broker: Broker, queue: Queue, settlement: Settlement) -> SettleResult:
    """Find out why the settlement had no effect; retry while another request holds or changes the row.

    Only the tombstone decides what happened. It is read after the row no longer carries the token.
    """
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(broker, try_number - 1)
        (locked,) = await broker.store.locked_messages([settlement.token])
        if locked is None or locked.queue_id != queue.id:
            return await resolve_late(broker, queue, settlement.token, settlement.outcome)
        expired_generation = NO_EXPIRED_GENERATION
        if locked.is_live:
            (expired_generation,) = await broker.lock_store.expired_generations([settlement.token])
            (effective,) = await _apply(broker, [replace(settlement, fence=fence_above(expired_generation))])
            if effective:
                await broker.lock_store.delete_records([(settlement.token, MAX_GENERATION)])
                return _settled(settlement)
        if lost := await release_lost(broker, locked, expired_generation):
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
