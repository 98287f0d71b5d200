"""How much one page of messages or of the archive may read."""

from dataclasses import dataclass

_BATCH_SIZE = 200
"""Messages read per statement, without their bodies, while a filter searches for matches."""

MAX_BATCHES = 50
MAX_BYTES = 64 << 20
MAX_SECONDS = 2.0
"""Limits of one page: statements, bytes without bodies, and seconds. They bound filters that match almost nothing."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How much one page may read without bodies."""

    batch_size: int = _BATCH_SIZE
    max_batches: int = MAX_BATCHES
    max_bytes: int = MAX_BYTES
    max_seconds: float = MAX_SECONDS
