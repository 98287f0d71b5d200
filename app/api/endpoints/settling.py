"""Settling over HTTP: one lock, or many in one request."""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.endpoints.lock_actions import lock_renewal, settlement_request
from app.api.endpoints.refusals import JOIN_REFUSALS, SETTLE_REFUSALS
from app.broker.settling.renew import RenewedLock
from app.broker.settling.settle import SettlementRequest, settle_one
from app.broker.transactions.join import join_settlements
from app.domain.access import Right
from app.domain.instant import to_milliseconds
from app.domain.queue import Queue
from app.domain.refusals import (
    LockStoreUnavailable,
    MessageBusy,
    QueueNotFound,
    Refusal,
    ReplyTooLarge,
    SynchronousMessage,
)
from app.domain.settlement import LockToken, Settled
from app.domain.transaction import JoinedIntent
from app.http.decoding import entry_decoder
from app.http.operation import EmptyBody, operation
from app.http.problems import problem_of
from app.http.request import Request
from app.http.response import Response
from app.http.settling import BatchResult, LockRenewal, renew_or_change, settle_batch
from app.wire.field_types import LockTokenText
from app.wire.settlements import (
    AbandonLock,
    CompleteLock,
    DeadLetterLock,
    DeferLock,
    LockRenewed,
    RefusedResult,
    ReleaseLock,
    RenewedResult,
    RenewLock,
    RenewSettlement,
    SettledResult,
    SettleLock,
    Settlement,
    SettlementDone,
    SettlementResult,
    SettlementResults,
    SettleMessages,
    settlement_done,
    settlement_pending,
)
from app.wire.times import to_wire

_decode_settlement = entry_decoder(Settlement)

LOCK_REFUSALS = (*SETTLE_REFUSALS, *JOIN_REFUSALS, SynchronousMessage)
LOCK = "/v1/queues/{queue}/locks/{lock_token}"


class SettlementEntry(msgspec.Struct, frozen=True):
    """A settlement or renewal, and the token of its lock as the client sent it."""

    lock_token: str
    request: SettlementRequest | LockRenewal


class MalformedSettlement(msgspec.Struct, frozen=True):
    """The refusal of an invalid settlement, and its token if it has one."""

    lock_token: str | None
    request: Refusal


@operation(
    "POST", LOCK + "/complete", right=Right.LISTEN, tag="locks",
    body=CompleteLock, empty_body=EmptyBody.USUAL, responses={200: SettlementDone}, refusals=(*LOCK_REFUSALS, ReplyTooLarge),
)  # fmt: skip
async def complete_lock(request: Request[CompleteLock]) -> Response:
    """Complete: the message is done and leaves the queue."""
    return await _settle_lock(request, request.body)


@operation(
    "POST", LOCK + "/abandon", right=Right.LISTEN, tag="locks",
    body=AbandonLock, empty_body=EmptyBody.USUAL, responses={200: SettlementDone}, refusals=LOCK_REFUSALS,
    example={"delay_seconds": 5, "reason": "address_unknown"},
)  # fmt: skip
async def abandon_lock(request: Request[AbandonLock]) -> Response:
    """Abandon: the message returns to its queue and is delivered again."""
    return await _settle_lock(request, request.body)


@operation(
    "POST", LOCK + "/dead-letter", right=Right.LISTEN, tag="locks",
    body=DeadLetterLock, empty_body=EmptyBody.USUAL, responses={200: SettlementDone}, refusals=LOCK_REFUSALS,
    example={"reason": "bad_address", "description": "The street does not exist."},
)  # fmt: skip
async def dead_letter_lock(request: Request[DeadLetterLock]) -> Response:
    """Dead-letter: the message cannot be processed and is set aside with the reason."""
    return await _settle_lock(request, request.body)


@operation(
    "POST", LOCK + "/defer", right=Right.LISTEN, tag="locks",
    body=DeferLock, empty_body=EmptyBody.USUAL, responses={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def defer_lock(request: Request[DeferLock]) -> Response:
    """Defer: the message is set aside, to be received by its sequence number."""
    return await _settle_lock(request, request.body)


@operation(
    "POST", LOCK + "/release", right=Right.LISTEN, tag="locks",
    body=ReleaseLock, empty_body=EmptyBody.USUAL, responses={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def release_lock(request: Request[ReleaseLock]) -> Response:
    """Release: the message returns unprocessed, as if it had not been delivered."""
    return await _settle_lock(request, request.body)


@operation(
    "POST", LOCK + "/renew", right=Right.LISTEN, tag="locks",
    body=RenewLock, empty_body=EmptyBody.USUAL, responses={200: LockRenewed}, refusals=SETTLE_REFUSALS,
    example={"lock_seconds": 60},
)  # fmt: skip
async def renew_lock(request: Request[RenewLock]) -> Response:
    """Renew: extend the lock, counted from now. With `exact` it ends exactly then, even if that is earlier than before."""
    queue = await request.queue()
    renewal = lock_renewal(LockToken.parse(request.path["lock_token"]), request.body)
    promise = await renew_or_change(request.broker.settling, queue, renewal)
    left = promise.remaining(request.broker.clock.monotonic())
    return Response(LockRenewed(to_wire(promise.locked_until), to_milliseconds(left)))


@operation(
    "POST", "/v1/queues/{queue}/settle", right=Right.LISTEN, tag="locks",
    body=SettleMessages, responses={200: SettlementResults}, refusals=(QueueNotFound,),
    example={
        "settlements": [
            {"action": "complete", "lock_token": "17.1c66d937e0ceeec78eb91ef100ded6eb"},
            {"action": "abandon", "lock_token": "18.2a1ad0a34375aee475e99922479b9e45", "delay_seconds": 5},
        ]
    },
)  # fmt: skip
async def settle_messages(request: Request[SettleMessages]) -> Response:
    """Settle many deliveries in one request. Each has its own result, in order.

    An invalid settlement gets the problem that a single request would get, and its pointers name the entry. The whole
    request is refused only if `settlements` is not a list of 1 to 1000 entries.
    """
    queue = await request.queue()
    entries = read_settlements(queue, request.body.settlements)
    transaction_id = request.body.transaction_id
    key = None if transaction_id is None else request.transaction_key(transaction_id)
    results = await settle_batch(request.broker, queue, [entry.request for entry in entries], key)
    return Response(SettlementResults(results_of(request, entries, results)))


def read_settlements(
    queue: Queue, raw_settlements: Sequence[msgspec.Raw]
) -> list[SettlementEntry | MalformedSettlement]:
    """Return each settlement, or the refusal that a single request would get, with pointers into that settlement."""
    return [_read_settlement(queue, bytes(raw)) for raw in raw_settlements]


def results_of(
    request: Request[Any],
    entries: Sequence[SettlementEntry | MalformedSettlement],
    results: Sequence[BatchResult],
) -> list[SettlementResult]:
    """Return the results of a batch. Call it just before the answer: the remaining time of renewed locks is as of now."""
    now = request.broker.clock.monotonic()
    return [
        _refused_result(index, entry.lock_token, entry.request, request.request_id)
        if isinstance(entry, MalformedSettlement)
        else _result(index, entry.lock_token, result, request.request_id, now)
        for index, (entry, result) in enumerate(zip(entries, results, strict=True))
    ]


async def _settle_lock(request: Request[Any], body: SettleLock) -> Response:
    queue = await request.queue()
    settlement = settlement_request(queue, LockToken.parse(request.path["lock_token"]), body)
    if body.transaction_id is None:
        return Response(settlement_done(await settle_one(request.broker.settling, queue, settlement)))
    key = request.transaction_key(body.transaction_id)
    (joined,) = await join_settlements(request.broker.transactions, key, queue, [settlement])
    if not isinstance(joined, JoinedIntent):
        raise joined
    return Response(settlement_pending(joined))


class _LockTokenOnly(msgspec.Struct):
    """The token of an invalid settlement."""

    lock_token: LockTokenText | None = None


def _read_settlement(queue: Queue, raw: bytes) -> SettlementEntry | MalformedSettlement:
    try:
        settlement: Settlement = _decode_settlement(raw)
        return SettlementEntry(settlement.lock_token, _request(queue, settlement))
    except Refusal as refusal:
        return MalformedSettlement(_lock_token_of(raw), refusal.as_result())


def _request(queue: Queue, settlement: Settlement) -> SettlementRequest | LockRenewal:
    token = LockToken.parse(settlement.lock_token)
    if isinstance(settlement, RenewSettlement):
        return lock_renewal(token, settlement)
    return settlement_request(queue, token, settlement)


def _lock_token_of(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_LockTokenOnly).lock_token
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _result(index: int, token: str, result: BatchResult, tracking_id: str, now: float) -> SettlementResult:
    match result:
        case Settled() | JoinedIntent():
            done = settlement_done(result) if isinstance(result, Settled) else settlement_pending(result)
            return SettledResult(
                done.outcome, done.sequence_number, done.replayed, done.state, done.pending, lock_token=token
            )
        case RenewedLock():
            left = to_milliseconds(result.remaining(now))
            return RenewedResult(to_wire(result.locked_until), left, lock_token=token)
        case Refusal() | MessageBusy() | LockStoreUnavailable():
            return _refused_result(index, token, result, tracking_id)


def _refused_result(
    index: int, token: str | None, refusal: Refusal | MessageBusy | LockStoreUnavailable, tracking_id: str
) -> RefusedResult:
    return RefusedResult(token, problem_of(refusal, tracking_id, f"/settlements/{index}"))
