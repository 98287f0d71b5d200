"""Sending on MariaDB and MySQL: drafts become rows, and receipts tell their numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, TypeAlias

from app.broker.ports import QueueGone
from app.domain.instant import Instant
from app.domain.message import Draft, MessageState, Receipt
from app.domain.refusals import MessageTooLarge
from app.store.mysql_session import Answer, Ask, NullRefused, Session, TextTooLarge
from app.store.mysql_text import table
from app.store.pool import LockWaitEnded, MessageIdHeld
from app.store.rows import DRAFT_COLUMNS, STATES, draft_row

Id: TypeAlias = tuple[int, str]
"""A queue, and a message id in it."""


async def send(session: Session, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store the drafts and commit."""
    return await store(session, drafts, session.finish)


async def store(session: Session, drafts: Sequence[Draft], ask: Ask) -> list[Receipt]:
    """Store the drafts, but none whose message id is known within its window; receipts in order.

    Refuses with `MessageTooLarge` where a message is larger than the server takes at a time.
    """
    if not any(draft.duplicate_window for draft in drafts):
        return await _insert(session, drafts, ask)
    told = await _told(session, drafts)
    is_fresh = _first_of_each(drafts, told)
    fresh = list(compress(drafts, is_fresh))
    stored = await _insert(session, fresh, session.ask)
    told |= {_id(draft): receipt for draft, receipt in zip(fresh, stored, strict=True) if draft.duplicate_window}
    await ask(session.text("know_ids", rows=table(_known_rows(fresh, stored))))
    in_order = iter(stored)
    return [
        next(in_order) if new else replace(told[_id(draft)], duplicate=True)
        for draft, new in zip(drafts, is_fresh, strict=True)
    ]


async def _insert(session: Session, drafts: Sequence[Draft], ask: Ask) -> list[Receipt]:
    """Store drafts as rows. The numbers of one INSERT follow each other, and those of a later one are higher."""
    if not drafts:
        return []
    queue_ids = sorted({draft.queue_id for draft in drafts})
    *inserts, last = session.texts(
        "send", (dict(zip(DRAFT_COLUMNS, draft_row(draft), strict=True)) for draft in drafts)
    )
    # The clock is taken once, so that all rows are of one day.
    begin = [session.text("start_clock", queues=len(queue_ids), queue_ids=queue_ids)]
    stored: list[Answer] = []
    try:
        for insert in inserts:
            stored.append((await session.ask(*begin, insert))[-1])
            begin = []
        *_, inserted, _, clock = await ask(*begin, last, _count(session, drafts), session.text("read_clock"))
    except NullRefused as error:
        raise QueueGone from error
    except TextTooLarge as error:
        raise MessageTooLarge(f"The database takes at most {error.largest} bytes at a time.") from error
    ((now, step),) = clock.rows
    numbers = (one.first_number + step * row for one in [*stored, inserted] for row in range(one.changed))
    return [
        Receipt(number, draft.envelope.message_id, now, _state(draft, now))
        for draft, number in zip(drafts, numbers, strict=True)
    ]


def _count(session: Session, drafts: Sequence[Draft]) -> bytes:
    """The statement that counts these drafts as accepted by their queues."""
    accepted = Counter(draft.queue_id for draft in drafts)
    rows = [{"queue_id": queue_id, "accepted": count} for queue_id, count in sorted(accepted.items())]
    return session.text("count_accepted", rows=table(rows))


def _state(draft: Draft, now: Instant) -> MessageState:
    """The state that the statement gave the row, by the same clock."""
    due = now + draft.delay if draft.available_at is None and draft.delay is not None else draft.available_at
    return MessageState.SCHEDULED if due is not None and due > now else MessageState.AVAILABLE


async def _told(session: Session, drafts: Sequence[Draft]) -> dict[Id, Receipt]:
    """What the senders of these message ids were told before; no other transaction may send one of them until the end.

    Named in one order everywhere, so that two transactions never wait for each other. Raises `MessageIdHeld`.
    """
    ids = sorted({_id(draft) for draft in drafts if draft.duplicate_window})
    asked = [{"queue_id": queue_id, "message_id": message_id} for queue_id, message_id in ids]
    rows = table(asked)
    held, known = session.text("hold_ids", rows=rows), session.text("known_ids", rows=rows)
    try:
        *_, told = await session.ask(held, *session.texts("name_ids", asked), known)
    except LockWaitEnded as error:
        raise MessageIdHeld from error
    return {
        (queue_id, message_id.decode()): Receipt(number, message_id.decode(), enqueued_at, STATES[state])
        for queue_id, message_id, number, enqueued_at, state in told.rows
    }


def _first_of_each(drafts: Sequence[Draft], told: Mapping[Id, Receipt]) -> list[bool]:
    """Which drafts are stored: of each message id that is looked for only the first, unless it was there before."""
    seen = set(told)
    answers: list[bool] = []
    for draft in drafts:
        answers.append(not draft.duplicate_window or _id(draft) not in seen)
        if draft.duplicate_window:
            seen.add(_id(draft))
    return answers


def _known_rows(drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> list[Mapping[str, Any]]:
    return [
        {
            "queue_id": draft.queue_id,
            "message_id": draft.envelope.message_id,
            "sequence_number": receipt.sequence_number,
            "enqueued_at": receipt.enqueued_at,
            "state": receipt.state.value,
            "duplicate_window": draft.duplicate_window,
        }
        for draft, receipt in zip(drafts, receipts, strict=True)
        if draft.duplicate_window
    ]


def _id(draft: Draft) -> Id:
    return draft.queue_id, draft.envelope.message_id
