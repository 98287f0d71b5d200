"""Sending on PostgreSQL: one statement stores drafts as rows and recognises repeated message ids."""

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter, itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from app.broker.ports.sending import QueueGone
from app.domain.message import Draft, Receipt
from app.store.pooled.pool import MessageIdInUse
from app.store.postgresql.entries import entry_columns, fetch_entries
from app.store.shared import message_rows, rows
from app.store.shared.database import LockWaitTimeout, SqlSession
from app.store.shared.message_ids import MessageIdKey, first_occurrences, message_id_key
from app.store.shared.shared_bodies import shared_bodies


class SendStatements(NamedTuple):
    """The names of the statement that stores drafts, and of the one that also checks for repeated message ids."""

    store: str
    store_unless_repeated: str


SEND = SendStatements("send", "send_unless_repeated")
RECORDED_SEND = SendStatements("send_recorded", "send_unless_repeated_recorded")
"""The statements that also record what they store."""


async def send(session: SqlSession, drafts: Sequence[Draft], statements: SendStatements = SEND) -> list[Receipt]:
    """Store drafts, numbered in their order. A draft that repeats a recent message id gets the first one's receipt.

    Drafts that share bodies need a transaction. Other drafts are stored by one statement or, with windows, by a few.
    Raises `MessageIdInUse` if another transaction is about to use one of the ids that are checked.
    """
    if bodies := shared_bodies(drafts):
        await session.change("add_shared_bodies", ids=list(bodies), bodies=list(bodies.values()))
    if not any(map(attrgetter("duplicate_window"), drafts)):
        return await _store(session, drafts, statements.store)
    receipts: dict[int, Receipt] = {}
    remaining = list(compress(range(len(drafts)), first_occurrences(drafts)))
    while remaining:
        chosen = {index: drafts[index] for index in remaining}
        receipts |= await _store_unless_repeated(session, chosen, statements.store_unless_repeated)
        # If the window ended between the two statements, the id counts as new.
        remaining = [index for index in remaining if index not in receipts]
    return _with_duplicates(drafts, receipts)


async def _store(session: SqlSession, drafts: Sequence[Draft], statement: str) -> list[Receipt]:
    if not drafts:
        return []
    entries = [message_rows.draft_row(draft) for draft in drafts]
    queue_ids = _distinct_queue_ids(drafts)
    stored = await fetch_entries(session, statement, message_rows.DRAFT_COLUMNS, entries, distinct_queue_ids=queue_ids)
    if not stored:
        raise QueueGone
    return [
        Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])
        for draft, (number, enqueued_at, state) in zip(drafts, sorted(stored, key=itemgetter(0)), strict=True)
    ]


async def _store_unless_repeated(session: SqlSession, drafts: dict[int, Draft], statement: str) -> dict[int, Receipt]:
    """Return the receipts that are known of these drafts with different ids, by index."""
    columns = (*message_rows.DRAFT_COLUMNS, "duplicate_window")
    entries = [(*message_rows.draft_row(draft), draft.duplicate_window) for draft in drafts.values()]
    queue_ids = _distinct_queue_ids(drafts.values())
    try:
        stored = await session.fetch(
            statement,
            **entry_columns(columns, entries),
            distinct_queue_ids=queue_ids,
        )
    except LockWaitTimeout as error:
        raise MessageIdInUse from error
    if not stored:
        raise QueueGone
    receipts: dict[int, Receipt] = {}
    repeated: dict[MessageIdKey, int] = {}
    for (index, draft), (number, enqueued_at, state, is_stored) in zip(drafts.items(), stored, strict=True):
        if is_stored:
            receipts[index] = Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])
        else:
            repeated[message_id_key(draft)] = index
    return receipts | await _first_receipts(session, repeated)


async def _first_receipts(session: SqlSession, repeated: dict[MessageIdKey, int]) -> dict[int, Receipt]:
    if not repeated:
        return {}
    known = await session.fetch(
        "first_receipts",
        queue_id=[queue_id for queue_id, _ in repeated],
        message_id=[message_id for _, message_id in repeated],
    )
    return {
        repeated[queue_id, message_id]: Receipt(number, message_id, enqueued_at, rows.STATES.get(state), duplicate=True)
        for queue_id, message_id, number, enqueued_at, state in known
    }


def _distinct_queue_ids(drafts: Iterable[Draft]) -> list[int]:
    return sorted({draft.queue_id for draft in drafts})


def _with_duplicates(drafts: Sequence[Draft], receipts: dict[int, Receipt]) -> list[Receipt]:
    """Return the receipts of all drafts in order. A copy gets the receipt of the first draft with its id."""
    by_key = {message_id_key(drafts[index]): receipt for index, receipt in receipts.items()}
    return [
        receipts[index] if index in receipts else replace(by_key[message_id_key(draft)], duplicate=True)
        for index, draft in enumerate(drafts)
    ]
