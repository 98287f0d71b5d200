"""Carry out the settlements and renewals of one request, each with its own result."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from app.broker.broker import Broker
from app.broker.settling.change_lock import change_lock
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.renew import RenewedLock, renew
from app.broker.settling.settle import SettlementRequest, SettleResult, settle
from app.broker.transactions.join import join_settlements
from app.domain.instant import Duration
from app.domain.queue import Queue
from app.domain.refusals import LockStoreUnavailable, MessageBusy, Refusal, invalid_at
from app.domain.settlement import LockToken
from app.domain.transaction import JoinedIntent, TransactionKey


class LockRenewal(msgspec.Struct, frozen=True):
    """A renewal for this duration; None is that of the queue. With `is_exact` the lock ends after it, even if that is earlier."""

    token: LockToken
    duration: Duration | None
    is_exact: bool


BatchEntry: TypeAlias = SettlementRequest | LockRenewal | Refusal
"""A settlement, a renewal, or the refusal of an entry that is neither."""

RenewalResult: TypeAlias = RenewedLock | Refusal | MessageBusy | LockStoreUnavailable
BatchResult: TypeAlias = SettleResult | JoinedIntent | RenewalResult
"""The result of an entry."""


async def settle_batch(
    broker: Broker, queue: Queue, entries: Sequence[BatchEntry], key: TransactionKey | None = None
) -> list[BatchResult]:
    """Carry out a batch, or let its settlements join this transaction. Return the result of each entry, in order.

    Of several entries with the same token, only the first is carried out. Refuses as `join_settlements` does.
    """
    indexes: dict[LockToken, int] = {}
    settlements: dict[int, SettlementRequest] = {}
    renewals: dict[int, LockRenewal] = {}
    results: dict[int, BatchResult] = {}
    for index, entry in enumerate(entries):
        if isinstance(entry, Refusal):
            results[index] = entry
        elif (first := indexes.setdefault(entry.token, index)) != index:
            detail = f"Settlement {first} of this batch, counted from 0, has the same lock token."
            results[index] = invalid_at("/lock_token", detail)
        elif isinstance(entry, LockRenewal):
            renewals[index] = entry
        else:
            settlements[index] = entry
    settling = _settle_or_join(broker, queue, list(settlements.values()), key)
    renewed: Sequence[RenewalResult] = ()
    if renewals:
        renewing = (_renew(broker.settling, queue, renewal) for renewal in renewals.values())
        settled, renewed = await asyncio.gather(settling, asyncio.gather(*renewing))
    else:
        # Most batches renew nothing and need no tasks.
        settled = await settling
    results.update(zip(settlements, settled, strict=True))
    results.update(zip(renewals, renewed, strict=True))
    return [results[index] for index in range(len(entries))]


async def _settle_or_join(
    broker: Broker, queue: Queue, requests: Sequence[SettlementRequest], key: TransactionKey | None
) -> Sequence[SettleResult | JoinedIntent]:
    if key is None:
        return await settle(broker.settling, queue, requests)
    return await join_settlements(broker.transactions, key, queue, requests)


async def renew_or_change(ports: SettlingPorts, queue: Queue, renewal: LockRenewal) -> RenewedLock:
    """Renew a lock, or change its end exactly. Refuses as `renew` and `change_lock` do."""
    verb = change_lock if renewal.is_exact else renew
    return await verb(ports, queue, renewal.token, renewal.duration)


async def _renew(ports: SettlingPorts, queue: Queue, renewal: LockRenewal) -> RenewalResult:
    try:
        return await renew_or_change(ports, queue, renewal)
    except (Refusal, MessageBusy, LockStoreUnavailable) as refusal:
        return refusal
