"""The archive of ended messages, which are sealed and removed in batches."""

from typing import Protocol

from app.domain.archive import (
    CURRENT_DIGEST_VERSION,
    DEFAULT_BATCH_LIMITS,
    ArchiveBatch,
    ArchivedMessage,
    BatchLimits,
    CopiedBatch,
    DigestVersion,
    TrimResult,
    UnsealedMessage,
)
from app.domain.instant import Instant


class ArchiveStore(Protocol):
    """Ended messages, in batches that never change once they are sealed.

    A batch is removed as a whole, and only after it was sealed, so no reader ever gets half of one.
    """

    async def ended_before(self, before: int, limit: int) -> list[ArchivedMessage]:
        """Return archived messages of all queues with sequence numbers below `before`, descending."""
        ...

    async def first_unsealed(self, since: Instant) -> UnsealedMessage | None:
        """Return the unsealed message with the earliest `remove_at` that is not before `since`."""
        ...

    async def seal(
        self,
        first: UnsealedMessage,
        limits: BatchLimits = DEFAULT_BATCH_LIMITS,
        version: DigestVersion = CURRENT_DIGEST_VERSION,
    ) -> ArchiveBatch | None:
        """Seal a batch of this message and those that follow it within `BATCH_SPAN` and the limits, in one transaction.

        The batch has the next number; it becomes visible only after all lower numbers. Returns None if another process
        is sealing or has sealed the message.
        """
        ...

    async def list_batches(self, after: int, limit: int) -> list[ArchiveBatch]:
        """Return sealed batches with numbers above `after`, ascending, including removed ones."""
        ...

    async def trim(self, copy: CopiedBatch) -> TrimResult:
        """Remove the messages of a batch, and the events that its digest covers, if they equal both the copy and the sealed
        batch, and the messages ended over an hour ago.

        The same transaction compares a digest of the batch's digest version. Younger messages stay: for an hour they
        serve as tombstones.
        """
        ...

    async def delete_expired(self, limit: int) -> int:
        """Remove batches whose retention has passed, up to about `limit` messages; return how many messages."""
        ...
