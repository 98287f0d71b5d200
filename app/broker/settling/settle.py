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
from itertools import compress
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from app.broker.settling.end_synchronous_send import end_synchronous_send
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.release_expired import release_expired
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.refusals import (
    AlreadySettled,
    LockLost,
    LossCause,
    MessageBusy,
    MessageNotFound,
    Refusal,
    StoreUnavailable,
)
from app.domain.settlement import (
    MAX_GENERATION,
    NO_EXPIRED_GENERATION,
    Fence,
    LockedMessage,
    LockToken,
    Move,
    Outcome,
    Removal,
    Settled,
    Settlement,
    loss_cause,
    settled_by,
    undelivered_release,
)
from app.domain.transaction_refusals import MessageInTransaction
from app.runtime.clock import Clock

MAX_TRIES = 10
"""How often a settlement is tried. Each failed try means that another request holds the row or has just changed it.
It limits no request."""

_FIRST_PAUSE_SECONDS = 0.005
"""The pause before the third try. Each pause is twice as long as the one before; together they last 1.3 seconds."""


class PendingSettlement(msgspec.Struct, frozen=True):
    """A settlement that is built from the row, whose counts cannot change while the token holds it.

    `build` gets the row and a random fraction in [0, 1).
    """

    token: LockToken
    outcome: Outcome
    build: Callable[[LockedMessage, float], Settlement]


SettlementRequest: TypeAlias = Settlement | PendingSettlement
SettleResult: TypeAlias = Settled | Refusal | MessageBusy


async def settle(ports: SettlingPorts, queue: Queue, requests: Sequence[SettlementRequest]) -> list[SettleResult]:
    """Settle these deliveries; return a result for each, in order."""
    built = await build_settlements(ports, queue, requests)
    settlements = [settlement for settlement in built if isinstance(settlement, Removal | Move)]
    if queue.has_groups:
        settlements = [replace(settlement, is_in_group=True) for settlement in settlements]
    if queue.settings.history:
        settlements = [replace(settlement, keeps_history=True) for settlement in settlements]
    applied = await _apply(ports, settlements)
    settled: list[SettleResult] = [*map(settled_by, settlements)]
    if not all(applied):
        failed = [index for index, effective in enumerate(applied) if not effective]
        retried = await asyncio.gather(*(_settle_again(ports, queue, settlements[index]) for index in failed))
        for index, answer in zip(failed, retried, strict=True):
            settled[index] = answer
    note_settled(ports, settlements, settled)
    if len(settled) == len(requests):
        return settled
    answers = iter(settled)
    return [
        next(answers)
        if isinstance(settlement, Removal | Move)
        else settlement or await resolve_late(ports, queue, request.token, request.outcome)
        for request, settlement in zip(requests, built, strict=True)
    ]


async def settle_one(ports: SettlingPorts, queue: Queue, request: SettlementRequest) -> Settled:
    """Settle one delivery. Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound` or `MessageBusy`."""
    (answer,) = await settle(ports, queue, [request])
    if isinstance(answer, Refusal | MessageBusy):
        raise answer
    return answer


async def release_undelivered(ports: SettlingPorts, queue: Queue, messages: Sequence[Message]) -> list[SettleResult]:
    """Release these messages to their old positions, without counting their deliveries, and wake waiting receivers.

    A message that another request holds is tried again, as in every settlement. A message that the store cannot release, or
    whose process dies, comes back when its lock expires. Returns a result for each, or an empty list if the store is
    unavailable.
    """
    try:
        return await settle(ports, queue, [undelivered_release(message) for message in messages])
    except StoreUnavailable:
        return []


async def build_settlements(
    ports: SettlingPorts, queue: Queue, requests: Sequence[SettlementRequest]
) -> list[Settlement | Refusal | None]:
    """Build the settlements, from the locked rows if needed; None where the token no longer holds a message."""
    tokens = [request.token for request in requests if isinstance(request, PendingSettlement)]
    rows = iter(await ports.store.locked_messages(tokens) if tokens else ())
    return [
        _build(request, next(rows), queue, ports.random_fraction())
        if isinstance(request, PendingSettlement)
        else request
        for request in requests
    ]


def _build(
    request: PendingSettlement, locked: LockedMessage | None, queue: Queue, random_fraction: float
) -> Settlement | Refusal | None:
    if locked is None or locked.queue_id != queue.id:
        return None
    try:
        return request.build(locked, random_fraction)
    except Refusal as refusal:
        return refusal.as_result()


async def resolve_late(
    ports: SettlingPorts, queue: Queue, token: LockToken, requested: Outcome | None
) -> Settled | Refusal:
    """Return the result of a late settlement, from the tombstone of the delivery."""
    (tombstone,) = await ports.store.tombstones([token])
    if tombstone is None or tombstone.queue_id != queue.id:
        return MessageNotFound("No delivery with this lock token is known in this queue.")
    if tombstone.outcome is requested:
        return Settled(token.sequence_number, tombstone.outcome, tombstone.state, replayed=True)
    if cause := loss_cause(tombstone.outcome):
        is_recovered = tombstone.outcome is Outcome.RECOVERED
        delivered_again = is_recovered or await ports.store.delivered_since(tombstone)
        return LockLost(cause, tombstone.settled_at, delivered_again)
    return AlreadySettled(tombstone.outcome)


async def release_lost(ports: SettlingPorts, locked: LockedMessage, expired_generation: int) -> LockLost | None:
    """Free a row whose lock has ended, so that no older copy of this request can still succeed.

    Returns None if the lock has not ended, or if another request changed the row first. Then the caller reads the row
    again, because a copy of the same request may have settled it.
    """
    if locked.is_live and locked.lock_generation != expired_generation:
        return None
    (freed,) = await release_expired(ports, [(locked, expired_generation)])
    if not freed:
        return None
    return LockLost(LossCause.EXPIRED, min(locked.locked_until, locked.read_at), delivered_again=False)


async def _apply(ports: SettlingPorts, settlements: Sequence[Settlement]) -> list[bool]:
    """Try all settlements at once; removals and moves use different statements."""
    removals = [settlement for settlement in settlements if isinstance(settlement, Removal)]
    if len(removals) == len(settlements):
        return await ports.store.remove(removals) if removals else []
    moves = [settlement for settlement in settlements if isinstance(settlement, Move)]
    if not removals:
        return await ports.store.move(moves)
    removed, moved = map(iter, await asyncio.gather(ports.store.remove(removals), ports.store.move(moves)))
    return [next(removed if isinstance(settlement, Removal) else moved) for settlement in settlements]


async def pause_before_retry(clock: Clock, try_number: int) -> None:
    """Pause before reading a row again that another request holds; the second try has no pause."""
    if try_number:
        await clock.sleep(_FIRST_PAUSE_SECONDS * 2 ** (try_number - 1))


async def _settle_again(ports: SettlingPorts, queue: Queue, settlement: Settlement) -> SettleResult:
    """Find out why the settlement had no effect; retry while another request holds or changes the row."""
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(ports.clock, try_number - 1)
        current = await with_current_fence(ports, queue, settlement)
        if isinstance(current, Settled | Refusal):
            return current
        if current is not None and await _apply_one(ports, current):
            await ports.lock_store.delete_records([(settlement.token, MAX_GENERATION)])
            return settled_by(current)
    return MessageBusy()


async def _apply_one(ports: SettlingPorts, settlement: Settlement) -> bool:
    if settlement.is_offered:
        return await end_synchronous_send(ports, settlement)
    (effective,) = await _apply(ports, [settlement])
    return effective


async def with_current_fence(
    ports: SettlingPorts, queue: Queue, settlement: Settlement
) -> Settlement | Settled | Refusal | None:
    """Return a settlement that had no effect with the fence of its row as it is now, or the result of its delivery.

    Returns None if another request holds or changes the row: try again later. Only the tombstone decides what
    happened. It is read after the row no longer carries the token.
    """
    (locked,) = await ports.store.locked_messages([settlement.token])
    if locked is None or locked.queue_id != queue.id:
        return await resolve_late(ports, queue, settlement.token, settlement.outcome)
    expired_generation = NO_EXPIRED_GENERATION
    if locked.is_live:
        if locked.is_in_transaction:
            return MessageInTransaction()
        (expired_generation,) = await ports.lock_store.expired_generations([settlement.token])
        if locked.lock_generation != expired_generation:
            # A settlement that joins a transaction after this look raises the generation.
            fence = Fence(expired_generation, locked.lock_generation)
            is_in_group, is_offered = locked.is_in_group, locked.is_offered
            return replace(settlement, fence=fence, is_in_group=is_in_group, is_offered=is_offered)
    return await release_lost(ports, locked, expired_generation)


def note_settled(ports: SettlingPorts, settlements: Sequence[Settlement], answers: Sequence[SettleResult]) -> None:
    """Count the settlements that took effect, and notify receivers of the messages that they have moved."""
    moves: list[Move] = []
    effective: list[bool] = []
    removals: list[Removal] = []
    for settlement, answer in zip(settlements, answers, strict=True):
        has_settled = isinstance(answer, Settled) and not answer.replayed
        if isinstance(settlement, Move):
            moves.append(settlement)
            effective.append(has_settled and not settlement.is_offered)
        elif has_settled:
            removals.append(settlement)
    ports.receivers.count_removed(removals)
    ports.receivers.notify_moved(moves, effective)
    ports.receivers.counters.time_settlements([*removals, *compress(moves, effective)])
