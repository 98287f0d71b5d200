"""How much a receive through a filter scans before it responds."""

from dataclasses import dataclass

from app.broker.filtering.filtered_read import FilteredBatch
from app.broker.filtering.search_state import MAX_BATCH_SIZE

_BATCH_BYTES = 2 << 20
"""Target size of one read. Messages larger than those before them may make one read exceed it."""

MAX_MESSAGES = 200_000
MAX_BYTES = 256 << 20
"""Limits of what one request scans before it responds."""

MIN_SECONDS = 2.0
"""How long a request may scan even if it does not wait."""

_MIN_COUNTED_MESSAGES = 10
"""Messages that each read costs at least, because even an empty read costs a statement."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much one request scans before it responds."""

    batch_size: int = MAX_BATCH_SIZE
    batch_bytes: int = _BATCH_BYTES
    max_messages: int = MAX_MESSAGES
    max_bytes: int = MAX_BYTES
    min_seconds: float = MIN_SECONDS


@dataclass(slots=True)
class SearchBudget:
    """What a request may still scan, and until when."""

    deadline: float
    messages: int
    bytes: int

    @property
    def is_spent(self) -> bool:
        """Whether the request has scanned as much as it may."""
        return self.messages <= 0 or self.bytes <= 0

    def spend(self, batch: FilteredBatch) -> None:
        """Subtract a batch that was read."""
        self.messages -= max(_MIN_COUNTED_MESSAGES, batch.count)
        self.bytes -= batch.weight
