"""Which drafts repeat a message id that their queue checks."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from app.domain.message import Draft

MessageIdKey: TypeAlias = tuple[int, str]
"""A queue, and a message id in it."""


def message_id_key(draft: Draft) -> MessageIdKey:
    """Return the queue and the message id of a draft."""
    return draft.queue_id, draft.envelope.message_id


def first_occurrences(drafts: Sequence[Draft], known: Iterable[MessageIdKey] = ()) -> list[bool]:
    """Return for each draft whether it is stored: of each checked message id only the first, and only if not `known`."""
    seen = set(known)
    is_first: list[bool] = []
    for draft in drafts:
        is_first.append(not draft.duplicate_window or message_id_key(draft) not in seen)
        if draft.duplicate_window:
            seen.add(message_id_key(draft))
    return is_first
