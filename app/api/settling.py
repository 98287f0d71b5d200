"""Settling over HTTP: one lock at a time, or many in one call."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from app.api.desk import Call
from app.api.operation import Reply, operation
from app.api.problems import problem_of
from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.complete import complete
from app.broker.dead_letter import dead_letter
from app.broker.defer import defer
from app.broker.renew import Promise, renew
from app.broker.settling import Answer, Ask, settle, settle_one
from app.domain.access import Right
from app.domain.instant import Duration, from_seconds, to_milliseconds
from app.domain.queue import Queue
from app.domain.refusals import MessageBusy, Refusal
from app.domain.settlement import LockToken, Settled
from app.wire.locks import (
    OUTCOME_NAMES,
    AbandonLock,
    AbandonSettlement,
    CompleteLock,
    CompleteSettlement,
    DeadLetterLock,
    DeadLetterSettlement,
    DeferLock,
    LockRenewed,
    RefusedResult,
    RenewedResult,
    RenewLock,
    RenewSettlement,
    SettledResult,
    Settlement,
    SettlementDone,
    SettlementResult,
    SettlementResults,
    SettleMessages,
)
from app.wire.properties import read_properties
from app.wire.shapes import STATE_NAMES, PropertyValue
from app.wire.times import to_wire
from app.wire.values import at

Renewal: TypeAlias = Promise | Refusal | MessageBusy
"""What a renewal in a batch is answered."""

LOCK_REFUSALS = (404, 409, 410, 422)
LOCK = "/v1/queues/{queue}/locks/{lock_token}"


@operation(
    "POST", LOCK + "/complete", right=Right.LISTEN, tag="locks",
    body=CompleteLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def complete_lock(call: Call[CompleteLock]) -> Reply:
    """Complete: the message is done and leaves the queue."""
    queue = await call.queue()
    return await _settled(call, queue, complete(queue, _token(call)))


@operation(
    "POST", LOCK + "/abandon", right=Right.LISTEN, tag="locks",
    body=AbandonLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def abandon_lock(call: Call[AbandonLock]) -> Reply:
    """Abandon: the message is given back, to be delivered again."""
    queue = await call.queue()
    return await _settled(call, queue, abandon(call.broker, queue, _token(call), _abandonment(call.body)))


@operation(
    "POST", LOCK + "/dead-letter", right=Right.LISTEN, tag="locks",
    body=DeadLetterLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def dead_letter_lock(call: Call[DeadLetterLock]) -> Reply:
    """Dead-letter: the message cannot be processed and is set aside with the reason."""
    queue = await call.queue()
    body = call.body
    return await _settled(call, queue, dead_letter(queue, _token(call), body.reason, body.description, _changes(body)))


@operation(
    "POST", LOCK + "/defer", right=Right.LISTEN, tag="locks",
    body=DeferLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def defer_lock(call: Call[DeferLock]) -> Reply:
    """Defer: the message is set aside, to be received by its sequence number."""
    queue = await call.queue()
    return await _settled(call, queue, defer(queue, _token(call), _changes(call.body)))


@operation(
    "POST", LOCK + "/renew", right=Right.LISTEN, tag="locks",
    body=RenewLock, answers={200: LockRenewed}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def renew_lock(call: Call[RenewLock]) -> Reply:
    """Renew: the lock lasts longer, counted from now."""
    promise = await renew(call.broker, await call.queue(), _token(call), _lock_duration(call.body))
    left = promise.remaining(call.broker.clock.monotonic())
    return Reply(LockRenewed(to_wire(promise.locked_until), to_milliseconds(left)))


@operation(
    "POST", "/v1/queues/{queue}/settle", right=Right.LISTEN, tag="locks",
    body=SettleMessages, answers={200: SettlementResults}, refusals=(404, 422),
)  # fmt: skip
async def settle_messages(call: Call[SettleMessages]) -> Reply:
    """Settle many deliveries in one call; each has its own result, in order."""
    queue = await call.queue()
    settlements = call.body.settlements
    answers = await settle_all(call.broker, queue, settlements, tokens_of(settlements, "/settlements"))
    return Reply(SettlementResults(results_of(call, settlements, answers)))


async def settle_all(
    broker: Broker, queue: Queue, settlements: Sequence[Settlement], tokens: Sequence[LockToken]
) -> list[Answer | Promise]:
    """Carry out a mixed batch, each settlement with its token; each has its own answer, in order."""
    asks = {
        place: _ask(broker, queue, token, settlement, f"/settlements/{place}")
        for place, (token, settlement) in enumerate(zip(tokens, settlements, strict=True))
        if not isinstance(settlement, RenewSettlement)
    }
    renewals = {
        place: settlement for place, settlement in enumerate(settlements) if isinstance(settlement, RenewSettlement)
    }
    settling = settle(broker, queue, list(asks.values()))
    renewed: Sequence[Renewal] = ()
    if renewals:
        renewing = (_renewed(broker, queue, tokens[place], renewal) for place, renewal in renewals.items())
        settled, renewed = await asyncio.gather(settling, asyncio.gather(*renewing))
    else:
        # Most batches renew nothing, and need no tasks.
        settled = await settling
    answers: dict[int, Answer | Promise] = {
        **dict(zip(asks, settled, strict=True)),
        **dict(zip(renewals, renewed, strict=True)),
    }
    return [answers[place] for place in range(len(settlements))]


def results_of(
    call: Call[Any], settlements: Sequence[Settlement], answers: Sequence[Answer | Promise]
) -> list[SettlementResult]:
    """What a batch is answered. What remains of renewed locks is counted now, so make it when the answer leaves."""
    now = call.broker.clock.monotonic()
    return [
        _result(settlement.lock_token, answer, call.request_id, now)
        for settlement, answer in zip(settlements, answers, strict=True)
    ]


async def _settled(call: Call[Any], queue: Queue, ask: Ask) -> Reply:
    return Reply(_done(await settle_one(call.broker, queue, ask)))


async def _renewed(broker: Broker, queue: Queue, token: LockToken, settlement: RenewSettlement) -> Renewal:
    try:
        return await renew(broker, queue, token, _lock_duration(settlement))
    except (Refusal, MessageBusy) as refusal:
        return refusal


def _ask(broker: Broker, queue: Queue, token: LockToken, settlement: Settlement, pointer: str) -> Ask:
    match settlement:
        case CompleteSettlement():
            return complete(queue, token)
        case AbandonSettlement():
            return abandon(broker, queue, token, _abandonment(settlement, pointer))
        case DeadLetterSettlement():
            return dead_letter(queue, token, settlement.reason, settlement.description, _changes(settlement, pointer))
        case _:
            return defer(queue, token, _changes(settlement, pointer) if isinstance(settlement, DeferLock) else None)


def _abandonment(body: AbandonLock, pointer: str = "") -> Abandonment:
    delay = None if body.delay_seconds is None else from_seconds(body.delay_seconds)
    return Abandonment(body.reason, body.count, delay, _changes(body, pointer))


def _changes(body: AbandonLock | DeadLetterLock | DeferLock, pointer: str = "") -> dict[str, PropertyValue] | None:
    """What a settlement that stands at the pointer changes of the message's properties."""
    return read_properties(body.properties, pointer.__add__)


def _lock_duration(body: RenewLock) -> Duration | None:
    return None if body.lock_seconds is None else from_seconds(body.lock_seconds)


def _token(call: Call[Any]) -> LockToken:
    return LockToken.parse(call.path["lock_token"])


def tokens_of(settlements: Sequence[Settlement], pointer: str) -> list[LockToken]:
    """The tokens of a batch.

    Refuses with `InvalidRequest` where one is garbled or comes twice: that is a mistake of the caller's, so
    nothing is done at all.
    """
    seen: dict[LockToken, int] = {}
    for place, settlement in enumerate(settlements):
        where = f"{pointer}/{place}/lock_token"
        try:
            token = LockToken.parse(settlement.lock_token)
        except Refusal as refusal:
            raise at(where, refusal.detail) from None
        if token in seen:
            raise at(where, f"This lock token already stands at {pointer}/{seen[token]}.")
        seen[token] = place
    return list(seen)


def _result(token: str, answer: Answer | Promise, tracking_id: str, now: float) -> SettlementResult:
    match answer:
        case Settled():
            done = _done(answer)
            return SettledResult(done.outcome, done.sequence_number, done.replayed, done.state, lock_token=token)
        case Promise():
            left = to_milliseconds(answer.remaining(now))
            return RenewedResult(to_wire(answer.locked_until), left, lock_token=token)
        case Refusal() | MessageBusy():
            return RefusedResult(token, problem_of(answer, tracking_id))


def _done(settled: Settled) -> SettlementDone:
    state = None if settled.state is None else STATE_NAMES[settled.state]
    return SettlementDone(OUTCOME_NAMES[settled.outcome], settled.sequence_number, settled.replayed, state)
