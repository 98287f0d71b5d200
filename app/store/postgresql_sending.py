"""Sending on PostgreSQL: drafts become rows in one statement, repeated message ids are recognised."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeAlias

from app.broker.ports import QueueGone
from app.domain.message import Draft, Receipt
from app.store import rows
from app.store.database import Session
from app.store.pool import LockWaitEnded, MessageIdHeld

Key: TypeAlias = tuple[int, str]
"""A message id in its queue."""


async def send(session: Session, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store drafts, numbered in their order; a draft that repeats a recent message id gets the first one's receipt.

    Raises `MessageIdHeld` where another transaction is about to use one of the ids that are looked for.
    """
    if not any(draft.duplicate_window for draft in drafts):
        return await _store(session, drafts)
    receipts: dict[int, Receipt] = {}
    left = _first_of_their_id(drafts)
    while left:
        receipts |= await _store_unless_repeated(session, {place: drafts[place] for place in left})
        # A window that ended between the two statements leaves nothing to repeat any more.
        left = [place for place in left if place not in receipts]
    return _with_copies(drafts, receipts)


async def _store(session: Session, drafts: Sequence[Draft]) -> list[Receipt]:
    stored = await session.fetch("send", **_columns(drafts), queues=_queues(drafts))
    if not stored:
        raise QueueGone
    return [
        Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])
        for draft, (number, enqueued_at, state) in zip(drafts, sorted(stored, key=itemgetter(0)), strict=True)
    ]


async def _store_unless_repeated(session: Session, drafts: dict[int, Draft]) -> dict[int, Receipt]:
    """The receipts of drafts with different ids, by place, as far as they are known."""
    windows = [draft.duplicate_window for draft in drafts.values()]
    queues = _queues(drafts.values())
    try:
        stored = await session.fetch(
            "send_unless_repeated", **_columns(drafts.values()), duplicate_window=windows, queues=queues
        )
    except LockWaitEnded as error:
        raise MessageIdHeld from error
    if not stored:
        raise QueueGone
    receipts: dict[int, Receipt] = {}
    repeated: dict[Key, int] = {}
    for (place, draft), (number, enqueued_at, state, is_stored) in zip(drafts.items(), stored, strict=True):
        if is_stored:
            receipts[place] = Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])
        else:
            repeated[_key(draft)] = place
    return receipts | await _first_receipts(session, repeated)


async def _first_receipts(session: Session, repeated: dict[Key, int]) -> dict[int, Receipt]:
    if not repeated:
        return {}
    known = await session.fetch(
        "first_receipts",
        queue_id=[queue_id for queue_id, _ in repeated],
        message_id=[message_id for _, message_id in repeated],
    )
    return {
        repeated[queue_id, message_id]: Receipt(number, message_id, enqueued_at, rows.STATES[state], duplicate=True)
        for queue_id, message_id, number, enqueued_at, state in known
    }


def _queues(drafts: Iterable[Draft]) -> list[int]:
    return sorted({draft.queue_id for draft in drafts})


def _key(draft: Draft) -> Key:
    return draft.queue_id, draft.envelope.message_id


def _first_of_their_id(drafts: Sequence[Draft]) -> list[int]:
    """The places of all drafts but those that repeat an earlier one among them."""
    seen: set[Key] = set()
    places: list[int] = []
    for place, draft in enumerate(drafts):
        if not draft.duplicate_window or _key(draft) not in seen:
            places.append(place)
        if draft.duplicate_window:
            seen.add(_key(draft))
    return places


def _with_copies(drafts: Sequence[Draft], receipts: dict[int, Receipt]) -> list[Receipt]:
    """The receipts of all drafts in order, those of copies being what the first of their id was told."""
    by_key = {_key(drafts[place]): receipt for place, receipt in receipts.items()}
    return [
        receipts[place] if place in receipts else replace(by_key[_key(draft)], duplicate=True)
        for place, draft in enumerate(drafts)
    ]


def _columns(drafts: Iterable[Draft]) -> dict[str, Any]:
    return dict(zip(rows.DRAFT_COLUMNS, zip(*map(rows.draft_row, drafts), strict=True), strict=True))
