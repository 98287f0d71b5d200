"""What has ended: sealed into batches, removed as such."""

from typing import Protocol

from app.domain.archive import (
    CURRENT_DIGEST_VERSION,
    DEFAULT_BATCH_LIMITS,
    ArchiveBatch,
    BatchLimits,
    CopiedBatch,
    DigestVersion,
    TrimResult,
    UnsealedMessage,
)
from app.domain.instant import Instant


class ArchiveStore(Protocol):
    """Messages as they ended, in batches that never change once they are sealed.

    A batch is removed as a whole, and only after it was sealed, so nobody ever reads half of one.
    """

    async def first_unsealed(self, since: Instant) -> UnsealedMessage | None:
        """Of the messages in no batch, and not to be removed before `since`, the one to be removed first."""
        ...

    async def seal(
        self,
        first: UnsealedMessage,
        limits: BatchLimits = DEFAULT_BATCH_LIMITS,
        version: DigestVersion = CURRENT_DIGEST_VERSION,
    ) -> ArchiveBatch | None:
        """Make a batch of this message and those that follow it within a `BATCH_SPAN`, in one transaction and within bounds.

        Its number follows the last one, and is seen only when that one is. None where somebody else is sealing or
        has sealed the message meanwhile.
        """
        ...

    async def list_batches(self, after: int, limit: int) -> list[ArchiveBatch]:
        """Sealed batches with numbers above `after`, ascending, also those that were removed."""
        ...

    async def trim(self, copy: CopiedBatch) -> TrimResult:
        """Remove the messages of a batch, if in the same transaction they are those of the copy and those that were
        sealed, by a digest of the batch's version, and have ended an hour ago: until then they are tombstones."""
        ...

    async def delete_expired(self, limit: int) -> int:
        """Remove batches past their time, until there is none or so many messages went; how many did."""
        ...
