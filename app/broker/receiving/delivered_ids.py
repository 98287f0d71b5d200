"""The message ids of recent deliveries, so that a commit need not read the id of its message."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from app.domain.message import Message
from app.domain.settlement import LockToken

_MAX_DELIVERIES = 8_192
"""Deliveries that are remembered. Each takes less than 1 KiB with the longest id."""

_MAX_QUEUES = 1_000
"""Queues whose deliveries are remembered."""

Delivery: TypeAlias = tuple[int, int, bytes]
"""The queue, the sequence number and the secret of a lock."""


class DeliveredIds:
    """Remembers deliveries by this process from queues whose messages are committed here; other queues pay nothing.

    An entry is never wrong: a token belongs to one delivery of one message, whose id never changes. Whether the delivery
    has ended is for the commit to find out. What is not remembered can be read from the store.
    """

    def __init__(self) -> None:
        self._queue_ids: dict[int, None] = {}
        self._message_ids: dict[Delivery, str] = {}

    def note(self, queue_id: int, messages: Iterable[Message]) -> None:
        """Remember the ids of locked messages, if messages of their queue are committed here."""
        if queue_id not in self._queue_ids:
            return
        for message in messages:
            if message.lock_token is not None:
                delivery = message.queue_id, message.sequence_number, message.lock_token
                self._message_ids[delivery] = message.envelope.message_id
        _drop_oldest(self._message_ids, _MAX_DELIVERIES)

    def take(self, queue_id: int, token: LockToken) -> str | None:
        """Return the id of the message that this token was given for, if it is remembered, and forget it."""
        self._queue_ids[queue_id] = None
        _drop_oldest(self._queue_ids, _MAX_QUEUES)
        return self._message_ids.pop((queue_id, token.sequence_number, token.secret), None)


def _drop_oldest(entries: dict[Any, Any], limit: int) -> None:
    while len(entries) > limit:
        del entries[next(iter(entries))]
