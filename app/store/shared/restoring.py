"""Takes archived messages as drafts that are stored again, each message once."""

from collections.abc import Sequence

from app.domain.archive import restored_ttl
from app.domain.message import Draft
from app.domain.queue import Queue
from app.store.shared.database import SqlSession
from app.store.shared.message_rows import BODY_KINDS, envelope
from app.store.shared.rows import Row


async def take_restorable(session: SqlSession, queue: Queue, numbers: Sequence[int]) -> list[Draft]:
    """Return drafts for this queue of those of these messages that no other restore has taken, by number.

    The transaction that takes messages also stores the drafts. The rows of the archive stay as they are.
    """
    taken = [number for (number,) in await session.fetch("restorable_for_update", numbers=list(numbers))]
    if not taken:
        return []
    await session.change("delete_restorable", numbers=taken)
    return [_draft(row, queue) for row in await session.fetch("archived_content", numbers=taken)]


def _draft(row: Row, queue: Queue) -> Draft:
    """Return the draft of a message that is due now. Its message id is not checked: the archived message had it first."""
    priority, available_at, expires_at, settled_at, message_id, group_id, headers, properties, body_kind, body = row
    return Draft(
        queue.id,
        envelope(message_id, group_id, headers, properties),
        body,
        BODY_KINDS[body_kind],
        priority,
        ttl=restored_ttl(available_at, expires_at, settled_at),
        is_in_group=queue.has_groups and group_id is not None,
    )
