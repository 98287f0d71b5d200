"""Join: a send or a settlement waits for the commit of its transaction.

Sends are checked when they join, as if they were stored then, and settlements under the fence of a renewal. That extends
the lock beyond the deadline of the transaction and raises its generation: evidence of an earlier renewal, and a
settlement outside that has read the row before, no longer match it.

Crash windows: before the SQL transaction ends nothing has joined. After it the members are stored; the client finds them
in the transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from app.broker.ports import TransactionStore
from app.broker.send import SendPorts, create_drafts
from app.broker.settle import (
    MAX_TRIES,
    SettlementRequest,
    SettlePorts,
    build_settlements,
    pause_before_retry,
    release_lost,
    resolve_late,
)
from app.domain.message import Draft
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, MessageBusy, Refusal
from app.domain.sending import NewMessage
from app.domain.settlement import NO_EXPIRED_GENERATION, LockedMessage, LockToken, Settlement
from app.domain.transaction import Intent, JoinedIntent, TransactionKey

JoinedSettlement: TypeAlias = JoinedIntent | Refusal | MessageBusy


@dataclass(frozen=True, slots=True)
class JoinPorts:
    """What members use to join."""

    transactions: TransactionStore
    sending: SendPorts
    settling: SettlePorts


async def join_sends(
    ports: JoinPorts, key: TransactionKey, name: str, new_messages: Sequence[NewMessage]
) -> list[Draft]:
    """Let all messages join, or none; return their drafts in order.

    Refuses as `create_drafts` does, and with `TransactionNotFound`, `TransactionEnded`, `TransactionRolledBack` or
    `TransactionFull`.
    """
    (await ports.transactions.find(key)).check_joinable()
    queue = await ports.sending.queue_cache.by_name_for_send(name, new_messages)
    drafts = await create_drafts(ports.sending, queue, new_messages)
    await ports.transactions.join_sends(key, queue.name, drafts)
    return drafts


async def join_settlements(
    ports: JoinPorts, key: TransactionKey, queue: Queue, requests: Sequence[SettlementRequest]
) -> list[JoinedSettlement]:
    """Let deliveries of one queue join; return a result for each, in order. No two have the same token.

    Refuses as `join_sends` does. The result of a delivery that has ended is that of a late settlement.
    """
    (await ports.transactions.find(key)).check_joinable()
    built = await build_settlements(ports.settling, queue, requests)
    results: dict[int, JoinedSettlement] = {}
    waiting: dict[int, Settlement] = {}
    for index, (request, settlement) in enumerate(zip(requests, built, strict=True)):
        if settlement is None:
            results[index] = await _late(ports, queue, request)
        elif isinstance(settlement, Refusal):
            results[index] = settlement
        else:
            waiting[index] = replace(settlement, keeps_history=queue.keeps_history)
    for try_number in range(MAX_TRIES):
        if not waiting:
            break
        if try_number:
            await pause_before_retry(ports.settling.clock, try_number - 1)
        joined = await _try_join(ports, key, queue, waiting)
        results |= joined
        waiting = {index: settlement for index, settlement in waiting.items() if index not in joined}
    return [results.get(index, MessageBusy()) for index in range(len(requests))]


async def _try_join(
    ports: JoinPorts, key: TransactionKey, queue: Queue, settlements: dict[int, Settlement]
) -> dict[int, JoinedSettlement]:
    """Return the results that are known after one try. The others are tried again."""
    results: dict[int, JoinedSettlement] = {}
    intents: dict[int, Intent] = {}
    rows = await ports.settling.messages.locked_messages([settlement.token for settlement in settlements.values()])
    expired_generations = await _expired_generations(ports, rows)
    for (index, settlement), row in zip(settlements.items(), rows, strict=True):
        if row is None or row.queue_id != queue.id:
            results[index] = await _late(ports, queue, settlement)
            continue
        expired_generation = expired_generations.get(row.token, NO_EXPIRED_GENERATION)
        if row.is_live and row.lock_generation != expired_generation:
            intents[index] = Intent(settlement, expired_generation)
        elif lost := await release_lost(ports.settling.releasing, row, expired_generation):
            results[index] = lost
    joined = await ports.transactions.join_settlements(key, queue.name, list(intents.values()))
    return results | {index: result for index, result in zip(intents, joined, strict=True) if result is not None}


async def _expired_generations(ports: JoinPorts, rows: Sequence[LockedMessage | None]) -> dict[LockToken, int]:
    """Return what the lock store knows of the locks that were renewed, by token."""
    renewed = [row.token for row in rows if row is not None and row.lock_generation]
    if not renewed:
        return {}
    return dict(zip(renewed, await ports.settling.lock_store.expired_generations(renewed), strict=True))


async def _late(ports: JoinPorts, queue: Queue, request: SettlementRequest) -> Refusal:
    """Return the refusal of a delivery that has ended."""
    ended = await resolve_late(ports.settling, queue, request.token, None)
    return ended if isinstance(ended, Refusal) else AlreadySettled(ended.outcome)
