"""Reads that lock, count and change nothing."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.domain.delivery import DeliveryPosition
from app.domain.explanation import EndedMessage, MessageFacts
from app.domain.history import EventCount, MessageEvent
from app.domain.instant import Instant
from app.domain.message import Message, MessageMetadata, MessageState
from app.domain.settlement import LockToken
from app.domain.transaction import (
    WaitingSettlement,
)


class BrowsingStore(Protocol):
    """What browsing, explanations and histories read. Every read is bounded."""

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, limit: int) -> list[Message]:
        """Return messages in these states with sequence numbers above `after`, ascending, unchanged."""
        ...

    async def browse_metadata(
        self, queue_id: int, states: Sequence[MessageState], after: int, limit: int
    ) -> list[MessageMetadata]:
        """Browse without reading bodies, for a caller that selects among many messages."""
        ...

    async def newest_metadata(self, queue_id: int, limit: int) -> list[MessageMetadata]:
        """Return the messages with the highest sequence numbers, in any state and descending, without their bodies."""
        ...

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        """Return one message in any state, unchanged."""
        ...

    async def read_many(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
        """Return those of these messages that are still in the queue, ascending, unchanged."""
        ...

    async def last_sequence_number(self) -> int:
        """Return the highest sequence number in any queue, or 0. All later messages have higher numbers."""
        ...

    async def restorable(
        self, queue: str, since: Instant, until: Instant, after: int, limit: int
    ) -> list[MessageMetadata]:
        """Return archived messages that a restore to the queue of this name can take, above `after`, ascending.

        They were purged or cancelled from `since` to `until`. Their state is that which they would get: available.
        """
        ...

    async def read_restorable(self, numbers: Sequence[int]) -> list[MessageMetadata]:
        """Return those of these messages that are still in the archive, ascending, as `restorable` does."""
        ...

    async def read_facts(self, queue_id: int, sequence_number: int) -> MessageFacts | None:
        """Return a message of the queue in any state, without its body."""
        ...

    async def read_end(self, queue_id: int, sequence_number: int) -> EndedMessage | None:
        """Return how a message left the queue, from the archive or, where the queue keeps none, from its tombstone."""
        ...

    async def locked_facts(self, queue_id: int, limit: int) -> list[MessageFacts]:
        """Return the first locked messages of the queue, by sequence number, without their bodies."""
        ...

    async def waiting_settlements(
        self, tokens: Sequence[LockToken], viewer: str
    ) -> Mapping[LockToken, WaitingSettlement]:
        """Return which of these deliveries have a settlement in an open transaction, as the principal `viewer` sees it."""
        ...

    async def count_ahead(self, queue_id: int, position: DeliveryPosition, limit: int) -> int:
        """Return how many available messages are delivered before this position, counted up to `limit`.

        Messages past their time to live count until they are removed.
        """
        ...

    async def first_in_flight(self, queue_id: int, group_id: str) -> MessageFacts | None:
        """Return the first message, by sequence number, that is in flight in the group, without its body."""
        ...

    async def count_blocked_ahead(self, queue_id: int, group_id: str, sequence_number: int, limit: int) -> int:
        """Return how many messages of the group are blocked before this sequence number, counted up to `limit`."""
        ...

    async def next_due_at(self, queue_id: int, limit: int) -> Instant | None:
        """Return the due time of the next scheduled message of the queue, or None if none is scheduled.

        It is exact if the queue has at most `limit` scheduled messages, or if the message is among the `limit` that are
        due first in all queues. Otherwise the time may be that of a later message.
        """
        ...

    async def history(self, queue_id: int, sequence_number: int, after: int, limit: int) -> list[MessageEvent]:
        """Return events of a message with numbers above `after`, ascending; none if another queue recorded it last."""
        ...

    async def history_by_minute(self, queue_id: int, newest: int) -> list[EventCount]:
        """Return the counts of the queue's events among the `newest` events of all queues, by minute, ascending."""
        ...
