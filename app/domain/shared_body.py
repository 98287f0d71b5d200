"""Shared bodies: the copies of one message refer to one stored body (S1.6, S1.15, S1.17)."""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from msgspec.structs import replace

from app.domain.message import Draft

MIN_SHARED_BYTES = 8 << 10
"""The smallest body that is shared. A shared body takes a further statement to store and a lookup to read. It limits
no request."""


def with_shared_bodies(drafts: Sequence[Draft], queue_ids: Container[int], new_id: Callable[[], str]) -> list[Draft]:
    """Return the drafts of one publish, those of a message with one new id for their body if they share it.

    Copies have one message id and one body. They share it if it is large, and at least two of them are for these queues.
    """
    large = [
        draft.envelope.message_id if len(draft.body) >= MIN_SHARED_BYTES and draft.queue_id in queue_ids else None
        for draft in drafts
    ]
    if not any(large):
        return list(drafts)
    copies = Counter(message_id for message_id in large if message_id is not None)
    ids = {message_id: new_id() for message_id, count in copies.items() if count > 1}
    return [
        draft if message_id is None or message_id not in ids else replace(draft, shared_body_id=ids[message_id])
        for draft, message_id in zip(drafts, large, strict=True)
    ]
