"""What explanations read. Nothing is locked, counted or changed, and every read is bounded."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.domain.delivery import DeliveryPosition
from app.domain.explanation import EndedMessage, MessageFacts
from app.domain.instant import Instant
from app.domain.settlement import LockToken
from app.domain.transaction import WaitingSettlement


class TraceStore(Protocol):
    """Reads of what is left of one message."""

    async def read_facts(self, queue_id: int, sequence_number: int) -> MessageFacts | None:
        """Return a message of the queue in any state, without its body."""
        ...

    async def read_end(self, queue_id: int, sequence_number: int) -> EndedMessage | None:
        """Return how a message left the queue, from the archive or, where the queue keeps none, from its tombstone."""
        ...


class ExplainStore(TraceStore, Protocol):
    """The message store as explanations read it."""

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
