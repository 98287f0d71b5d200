"""The archive's batches as whoever copies them reads and names them."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from app.domain.archive import ArchiveBatch, CopiedBatch, RemovalCause, TrimResult
from app.wire.field_types import END_OF_TEXT, MAX_INT64, Page, Timestamp
from app.wire.times import maybe_to_wire, to_wire

MAX_TRIMMED_BATCHES = 1000

BatchNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT64)]
RowCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64, description="Messages in the batch.")]
BatchDigest: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^[0-9a-f]{{64}}{END_OF_TEXT}",
        description="SHA-256 in hexadecimal, as the `digest_version` of the batch says.",
    ),
]
DigestVersionNumber: TypeAlias = Annotated[
    int,
    msgspec.Meta(
        description="What `digest` is taken of: 1 the ascending sequence numbers, each in decimal and followed by a line "
        "feed; 2 every exported column of every message, as docs/pipeline.md says.",
    ),
]


class BrowseBatches(Page, forbid_unknown_fields=True):
    """Which batches to list."""

    after: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64, description="Only batches of greater numbers.")] = 0


class BatchView(msgspec.Struct):
    """A sealed batch of the archive. It never changes, until its messages are removed all at once."""

    number: int
    row_count: int
    digest: str
    sealed_at: Timestamp
    remove_at: Timestamp
    removed_at: Timestamp | None
    removal: RemovalCause | None
    digest_version: DigestVersionNumber


class BatchPage(msgspec.Struct):
    """Batches by number; `next_cursor` is null at the end."""

    items: list[BatchView]
    next_cursor: str | None


class BatchCopy(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody has of a batch."""

    number: BatchNumber
    row_count: RowCount
    digest: BatchDigest


class TrimArchive(msgspec.Struct, forbid_unknown_fields=True):
    """The batches of which there is a copy elsewhere."""

    batches: Annotated[list[BatchCopy], msgspec.Meta(min_length=1, max_length=MAX_TRIMMED_BATCHES)]

    def copies(self) -> list[CopiedBatch]:
        """What is said of each."""
        return [CopiedBatch(one.number, one.row_count, one.digest) for one in self.batches]


class TrimmedBatch(msgspec.Struct):
    """What came of one batch."""

    number: int
    result: TrimResult


class ArchiveTrimmed(msgspec.Struct):
    """What came of each batch, in the order in which they were named."""

    batches: list[TrimmedBatch]


def batch_page(batches: Sequence[ArchiveBatch], limit: int) -> BatchPage:
    """A page of batches, of which there is one more than the limit if there are more."""
    more = str(batches[limit - 1].number) if len(batches) > limit else None
    return BatchPage([_batch_view(batch) for batch in batches[:limit]], more)


def archive_trimmed(copies: Sequence[CopiedBatch], results: Sequence[TrimResult]) -> ArchiveTrimmed:
    """The results, of which there are fewer than copies where time ran out."""
    return ArchiveTrimmed([TrimmedBatch(copy.number, result) for copy, result in zip(copies, results, strict=False)])


def _batch_view(batch: ArchiveBatch) -> BatchView:
    return BatchView(
        batch.number,
        batch.row_count,
        batch.digest,
        to_wire(batch.sealed_at),
        to_wire(batch.remove_at),
        maybe_to_wire(batch.removed_at),
        batch.removal,
        batch.digest_version,
    )
