"""What histories read. Nothing is locked, counted or changed."""

from typing import Protocol

from app.broker.ports.explain_store import TraceStore
from app.domain.history import EventCount, MessageEvent


class HistoryStore(TraceStore, Protocol):
    """The recorded events of messages."""

    async def history(self, queue_id: int, sequence_number: int, after: int, limit: int) -> list[MessageEvent]:
        """Return events of a message with numbers above `after`, ascending; none if another queue recorded it last."""
        ...

    async def history_by_minute(self, queue_id: int, newest: int) -> list[EventCount]:
        """Return the counts of the queue's events among the `newest` events of all queues, by minute, ascending."""
        ...
