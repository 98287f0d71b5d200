"""Settling over HTTP: one lock at a time, or many in one call."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from app.api.desk import Call
from app.api.operation import Reply, operation
from app.api.problems import problem_of
from app.api.settlements import Changes, Entry, Malformed, changes_of, read_entries
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
    SettlementDone,
    SettlementResult,
    SettlementResults,
    SettleMessages,
)
from app.wire.shapes import STATE_NAMES
from app.wire.times import to_wire

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
    return await _settled(
        call, queue, abandon(call.broker, queue, _token(call), _abandonment(call.body, changes_of(call.body)))
    )


@operation(
    "POST", LOCK + "/dead-letter", right=Right.LISTEN, tag="locks",
    body=DeadLetterLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def dead_letter_lock(call: Call[DeadLetterLock]) -> Reply:
    """Dead-letter: the message cannot be processed and is set aside with the reason."""
    queue = await call.queue()
    body = call.body
    return await _settled(
        call, queue, dead_letter(queue, _token(call), body.reason, body.description, changes_of(body))
    )


@operation(
    "POST", LOCK + "/defer", right=Right.LISTEN, tag="locks",
    body=DeferLock, answers={200: SettlementDone}, refusals=LOCK_REFUSALS,
)  # fmt: skip
async def defer_lock(call: Call[DeferLock]) -> Reply:
    """Defer: the message is set aside, to be received by its sequence number."""
    queue = await call.queue()
    return await _settled(call, queue, defer(queue, _token(call), changes_of(call.body)))


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
    """Settle many deliveries in one call; each has its own result, in order.

    A settlement that is not well formed has the problem that a single call would have, with pointers into that
    settlement. The request is refused as a whole only where it has no list of 1 to 1000 entries.
    """
    queue = await call.queue()
    entries = read_entries(call.body.settlements)
    answers = await settle_all(call.broker, queue, entries)
    return Reply(SettlementResults(results_of(call, entries, answers)))


async def settle_all(broker: Broker, queue: Queue, entries: Sequence[Entry | Malformed]) -> list[Answer | Promise]:
    """Carry out a mixed batch; each entry has its own answer, in order."""
    asks: dict[int, Ask] = {}
    renewals: dict[int, Entry] = {}
    answers: dict[int, Answer | Promise] = {}
    for place, entry in enumerate(entries):
        if isinstance(entry, Malformed):
            answers[place] = entry.refusal
        elif isinstance(entry.settlement, RenewSettlement):
            renewals[place] = entry
        else:
            asks[place] = _ask(broker, queue, entry)
    settling = settle(broker, queue, list(asks.values()))
    renewed: Sequence[Renewal] = ()
    if renewals:
        renewing = (_renewed(broker, queue, entry) for entry in renewals.values())
        settled, renewed = await asyncio.gather(settling, asyncio.gather(*renewing))
    else:
        # Most batches renew nothing, and need no tasks.
        settled = await settling
    answers.update(zip(asks, settled, strict=True))
    answers.update(zip(renewals, renewed, strict=True))
    return [answers[place] for place in range(len(entries))]


def results_of(
    call: Call[Any], entries: Sequence[Entry | Malformed], answers: Sequence[Answer | Promise]
) -> list[SettlementResult]:
    """What a batch is answered. What remains of renewed locks is counted now, so make it when the answer leaves."""
    now = call.broker.clock.monotonic()
    return [
        _refused(entry.lock_token, entry.refusal, call.request_id)
        if isinstance(entry, Malformed)
        else _result(entry.lock_token, answer, call.request_id, now)
        for entry, answer in zip(entries, answers, strict=True)
    ]


async def _settled(call: Call[Any], queue: Queue, ask: Ask) -> Reply:
    return Reply(_done(await settle_one(call.broker, queue, ask)))


async def _renewed(broker: Broker, queue: Queue, entry: Entry) -> Renewal:
    lock_duration = _lock_duration(entry.settlement) if isinstance(entry.settlement, RenewLock) else None
    try:
        return await renew(broker, queue, entry.token, lock_duration)
    except (Refusal, MessageBusy) as refusal:
        return refusal


def _ask(broker: Broker, queue: Queue, entry: Entry) -> Ask:
    settlement, token = entry.settlement, entry.token
    match settlement:
        case CompleteSettlement():
            return complete(queue, token)
        case AbandonSettlement():
            return abandon(broker, queue, token, _abandonment(settlement, entry.changes))
        case DeadLetterSettlement():
            return dead_letter(queue, token, settlement.reason, settlement.description, entry.changes)
        case _:
            return defer(queue, token, entry.changes)


def _abandonment(body: AbandonLock, changes: Changes) -> Abandonment:
    delay = None if body.delay_seconds is None else from_seconds(body.delay_seconds)
    return Abandonment(body.reason, body.count, delay, changes)


def _lock_duration(body: RenewLock) -> Duration | None:
    return None if body.lock_seconds is None else from_seconds(body.lock_seconds)


def _token(call: Call[Any]) -> LockToken:
    return LockToken.parse(call.path["lock_token"])


def _result(token: str, answer: Answer | Promise, tracking_id: str, now: float) -> SettlementResult:
    match answer:
        case Settled():
            done = _done(answer)
            return SettledResult(done.outcome, done.sequence_number, done.replayed, done.state, lock_token=token)
        case Promise():
            left = to_milliseconds(answer.remaining(now))
            return RenewedResult(to_wire(answer.locked_until), left, lock_token=token)
        case Refusal() | MessageBusy():
            return _refused(token, answer, tracking_id)


def _refused(token: str | None, refusal: Refusal | MessageBusy, tracking_id: str) -> RefusedResult:
    return RefusedResult(token, problem_of(refusal, tracking_id))


def _done(settled: Settled) -> SettlementDone:
    state = None if settled.state is None else STATE_NAMES[settled.state]
    return SettlementDone(OUTCOME_NAMES[settled.outcome], settled.sequence_number, settled.replayed, state)
