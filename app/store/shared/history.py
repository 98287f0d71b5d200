"""Histories: the transaction that changes a message also records the event, in queues that keep a history.

Statements that run for every message run alone for queues without a history. A request that says `keeps_history` runs
them in a transaction that ends with the statements here, or runs a form of them that also records. All of these ask the
row of the queue, so a request from before a change of the setting records nothing in a queue that keeps no history.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter

import msgspec

from app.broker.ports.maintaining import Withdrawal
from app.broker.ports.settling import Admitted, Extension
from app.domain.delivery import Claim
from app.domain.history import Event, EventCount, MessageEvent, event_of
from app.domain.instant import DAY, Duration
from app.domain.message import Draft, Message, Receipt
from app.domain.settlement import Move, Outcome, Removal
from app.domain.work_unit import WorkUnit
from app.store.shared import rows
from app.store.shared.database import Database, SqlSession

KEEP_PERIOD: Duration = DAY
"""How long an expired event is kept before it is checked again, while its message still exists."""

MAX_DELETION_STEPS = 100
"""Statements that look for events to delete in one pass, because most events that they find may be kept."""

_encode = msgspec.json.Encoder().encode


class HistoryReads:
    """The methods of `BrowsingStore` that histories use."""

    _database: Database

    async def history(self, queue_id: int, sequence_number: int, after: int, limit: int) -> list[MessageEvent]:
        """See `BrowsingStore`."""
        found_rows = await self._database.fetch(
            "history", queue_id=queue_id, sequence_number=sequence_number, after=after, limit=limit
        )
        return [rows.message_event(row) for row in found_rows]

    async def history_by_minute(self, queue_id: int, newest: int) -> list[EventCount]:
        """See `BrowsingStore`."""
        found_rows = await self._database.fetch("minutes_of_history", queue_id=queue_id, newest=newest)
        return [
            EventCount(minute, Event(event), None if outcome is None else Outcome(outcome), count)
            for minute, event, outcome, count in found_rows
        ]


def any_keeps_history(entries: Iterable[Draft | Claim | Move | Removal | Extension]) -> bool:
    """Return whether any of these may be recorded."""
    return any(map(attrgetter("keeps_history"), entries))


async def record(session: SqlSession, event: Event, numbers: Sequence[int], reason: str | None = None) -> None:
    """Record an event of each of these messages, as this transaction leaves them. A number given twice counts twice."""
    remaining = Counter(numbers)
    while remaining:
        await session.change("record_events", numbers=list(remaining), event=event.value, reason=reason)
        remaining -= Counter(dict.fromkeys(remaining, 1))


async def record_sent(
    session: SqlSession, drafts: Sequence[Draft], receipts: Sequence[Receipt], admitted: Sequence[Admitted] = ()
) -> None:
    """Record that drafts were stored, and that other messages were admitted."""
    if not any_keeps_history(drafts):
        return
    numbers = [
        receipt.sequence_number
        for draft, receipt in zip(drafts, receipts, strict=True)
        if draft.keeps_history and not receipt.duplicate
    ]
    await record(session, Event.SENT, numbers)
    await record_admitted(session, admitted)


async def record_restored(session: SqlSession, receipts: Sequence[Receipt], admitted: Sequence[Admitted]) -> None:
    """Record that messages were stored again, and that other messages were admitted."""
    await record(session, Event.RESTORED, [receipt.sequence_number for receipt in receipts])
    await record_admitted(session, admitted)


async def record_admitted(session: SqlSession, admitted: Iterable[Admitted], others: Sequence[int] = ()) -> None:
    """Record that messages were admitted, except those for which the same transaction records another event."""
    await record(
        session, Event.ADMITTED, [one.sequence_number for one in admitted if one.sequence_number not in others]
    )


async def record_delivered(
    session: SqlSession, claims: Iterable[Claim], served: Iterable[Sequence[Message] | Exception]
) -> None:
    """Record the messages that these claims got."""
    numbers = [
        message.sequence_number
        for claim, messages in zip(claims, served, strict=True)
        if claim.keeps_history and not isinstance(messages, Exception)
        for message in messages
    ]
    await record(session, Event.DELIVERED, numbers)


async def record_renewed(session: SqlSession, extensions: Sequence[Extension], effective: Iterable[bool]) -> None:
    """Record the extensions that took effect."""
    renewed = [one.token.sequence_number for one in compress(extensions, effective) if one.keeps_history]
    await record(session, Event.RENEWED, renewed)


async def record_settled(
    session: SqlSession,
    settlements: Sequence[Move | Removal],
    effective: Iterable[bool],
    admitted: Sequence[Admitted] = (),
) -> None:
    """Record the settlements that took effect, and that other messages were admitted."""
    kept = [one for one in compress(settlements, effective) if one.keeps_history]
    if kept:
        await _record_ends(session, [_ended_delivery(one) for one in kept])
        await record_admitted(session, admitted)


async def record_unit(
    session: SqlSession, unit: WorkUnit, receipts: Sequence[Receipt], admitted: Sequence[Admitted]
) -> None:
    """Record the settlements and drafts of a unit, and that other messages were admitted."""
    if any_keeps_history([*unit.settlements, *unit.drafts]):
        await record_settled(session, unit.settlements, [True] * len(unit.settlements))
        await record_sent(session, unit.drafts, receipts)
        await record_admitted(session, admitted)


async def record_withdrawn(session: SqlSession, withdrawals: Iterable[Withdrawal]) -> None:
    """Record that unlocked messages have left their queues."""
    await _record_ends(session, [_ended_message(withdrawal) for withdrawal in withdrawals])


async def delete_expired_events(database: Database, limit: int) -> int:
    """Delete about this number of events past their time. Return how many.

    The events of a message that is in a queue or in the archive are kept, and those of another one until its last event is
    past its time.
    """
    deleted = 0
    for _ in range(MAX_DELETION_STEPS):
        expired = await database.fetch("expired_events", limit=limit)
        if kept := [event_id for event_id, is_kept in expired if is_kept]:
            await database.change("keep_events", ids=kept, period=KEEP_PERIOD)
        if ended := [event_id for event_id, is_kept in expired if not is_kept]:
            deleted += await database.change("delete_events", ids=ended)
        if len(expired) < limit or deleted >= limit:
            break
    return deleted


class _End(msgspec.Struct, omit_defaults=True):
    """One entry of the statement `record_ends`."""

    sequence_number: int
    queue_id: int
    event: Event
    outcome: str | None = None
    lock_token: str | None = None
    state: int | None = None
    reason: str | None = None


def _ended_delivery(settlement: Move | Removal) -> _End:
    end = _End(
        settlement.token.sequence_number,
        settlement.queue_id,
        event_of(settlement.outcome),
        settlement.outcome.value,
        settlement.token.secret.hex().upper(),
    )
    if isinstance(settlement, Move):
        end.state = settlement.state.value
        end.reason = settlement.dead_letter_reason or settlement.last_failure
    return end


def _ended_message(withdrawal: Withdrawal) -> _End:
    row = withdrawal.row
    return _End(row.sequence_number, row.queue_id, event_of(withdrawal.outcome), withdrawal.outcome.value)


async def _record_ends(session: SqlSession, ends: Sequence[_End]) -> None:
    if ends:
        await session.change("record_ends", entries=_encode(ends).decode())
