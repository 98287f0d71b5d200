"""Sending on MariaDB and MySQL: drafts become rows, and receipts carry their numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from msgspec.structs import replace

from app.broker.ports.sending import QueueGone
from app.domain.instant import Instant
from app.domain.message import Draft, MessageState, Receipt
from app.domain.refusals import MessageTooLarge
from app.store.mysql.session import Execute, MysqlSession, NullViolation, StatementResult, StatementTooLarge
from app.store.mysql.templates import rows_json
from app.store.pooled.pool import MessageIdInUse
from app.store.shared.database import LockWaitTimeout
from app.store.shared.message_ids import MessageIdKey, first_occurrences, message_id_key
from app.store.shared.message_rows import DRAFT_COLUMNS, draft_row
from app.store.shared.rows import STATES
from app.store.shared.shared_bodies import shared_bodies


async def store(session: MysqlSession, drafts: Sequence[Draft], execute: Execute) -> list[Receipt]:
    """Store the drafts, except those whose message id is known within its window. Return the receipts in order.

    Refuses with `MessageTooLarge` if a message is larger than the server accepts.
    """
    if bodies := shared_bodies(drafts):
        await _insert_bodies(session, bodies)
    if not any(draft.duplicate_window for draft in drafts):
        return await _insert(session, drafts, execute)
    first_receipts = await _first_receipts(session, drafts)
    is_new = first_occurrences(drafts, first_receipts)
    new_drafts = list(compress(drafts, is_new))
    stored = await _insert(session, new_drafts, session.execute)
    first_receipts |= {
        message_id_key(draft): receipt
        for draft, receipt in zip(new_drafts, stored, strict=True)
        if draft.duplicate_window
    }
    await execute(session.render("save_receipts", rows=rows_json(_receipt_rows(new_drafts, stored))))
    in_order = iter(stored)
    return [
        next(in_order) if new else replace(first_receipts[message_id_key(draft)], duplicate=True)
        for draft, new in zip(drafts, is_new, strict=True)
    ]


async def _insert(session: MysqlSession, drafts: Sequence[Draft], execute: Execute) -> list[Receipt]:
    """Store drafts as rows. The numbers of one INSERT are consecutive, and those of a later INSERT are higher."""
    if not drafts:
        return []
    queue_ids = sorted({draft.queue_id for draft in drafts})
    *inserts, last = session.render_inserts(
        "send", (dict(zip(DRAFT_COLUMNS, draft_row(draft), strict=True)) for draft in drafts)
    )
    # The clock is read once, so that all rows are of one day.
    clock_statements = [session.render("start_clock", queue_count=len(queue_ids), queue_ids=queue_ids)]
    stored: list[StatementResult] = []
    try:
        for insert in inserts:
            stored.append((await session.execute(*clock_statements, insert))[-1])
            clock_statements = []
        *_, inserted, _, clock = await execute(
            *clock_statements, last, _count_statement(session, drafts), session.render("read_clock")
        )
    except NullViolation as error:
        raise QueueGone from error
    except StatementTooLarge as error:
        raise _too_large(error) from error
    ((now, step),) = clock.rows
    numbers = (result.first_number + step * row for result in [*stored, inserted] for row in range(result.changed))
    return [
        Receipt(number, draft.envelope.message_id, now, _state(draft, now))
        for draft, number in zip(drafts, numbers, strict=True)
    ]


async def _insert_bodies(session: MysqlSession, bodies: Mapping[str, bytes]) -> None:
    rows = ({"id": body_id, "body": body} for body_id, body in bodies.items())
    try:
        for insert in session.render_inserts("add_shared_bodies", rows):
            await session.execute(insert)
    except StatementTooLarge as error:
        raise _too_large(error) from error


def _too_large(error: StatementTooLarge) -> MessageTooLarge:
    return MessageTooLarge(f"The database accepts at most {error.largest} bytes at a time.")


def _count_statement(session: MysqlSession, drafts: Sequence[Draft]) -> bytes:
    """Return the statement that counts these drafts as accepted by their queues."""
    accepted = Counter(draft.queue_id for draft in drafts)
    rows = [{"queue_id": queue_id, "accepted": count} for queue_id, count in sorted(accepted.items())]
    return session.render("count_accepted", rows=rows_json(rows))


def _state(draft: Draft, now: Instant) -> MessageState:
    """Return the state that the statement gave the row, by the same clock."""
    due = now + draft.delay if draft.available_at is None and draft.delay is not None else draft.available_at
    if due is not None and due > now:
        return MessageState.SCHEDULED
    return MessageState.BLOCKED if draft.is_in_group else MessageState.AVAILABLE


async def _first_receipts(session: MysqlSession, drafts: Sequence[Draft]) -> dict[MessageIdKey, Receipt]:
    """Return the first receipts of these message ids. No other transaction can send one of the ids until this one ends.

    All transactions name ids in the same order, so they never deadlock. Raises `MessageIdInUse`.
    """
    ids = sorted({message_id_key(draft) for draft in drafts if draft.duplicate_window})
    ids_to_check = [{"queue_id": queue_id, "message_id": message_id} for queue_id, message_id in ids]
    rows = rows_json(ids_to_check)
    locking, known = session.render("ids_for_update", rows=rows), session.render("first_receipts", rows=rows)
    try:
        *_, first_receipts = await session.execute(locking, *session.render_inserts("insert_ids", ids_to_check), known)
    except LockWaitTimeout as error:
        raise MessageIdInUse from error
    return {
        (queue_id, message_id.decode()): Receipt(number, message_id.decode(), enqueued_at, STATES.get(state))
        for queue_id, message_id, number, enqueued_at, state in first_receipts.rows
    }


def _receipt_rows(drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> list[Mapping[str, Any]]:
    return [
        {
            "queue_id": draft.queue_id,
            "message_id": draft.envelope.message_id,
            "sequence_number": receipt.sequence_number,
            "enqueued_at": receipt.enqueued_at,
            "state": receipt.state,
            "duplicate_window": draft.duplicate_window,
        }
        for draft, receipt in zip(drafts, receipts, strict=True)
        if draft.duplicate_window
    ]
