"""Archive batches in requests and responses."""

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
        description="SHA-256 in hexadecimal, as defined by the `digest_version` of the batch.",
    ),
]
DigestVersionNumber: TypeAlias = Annotated[
    int,
    msgspec.Meta(
        description="What `digest` covers. 1: the ascending sequence numbers, each in decimal and followed by a line "
        "feed. 2: every exported column of every message, as described in docs/pipeline.md. 3: the same, and every "
        "exported column of every event in their histories; only batches with events have it.",
    ),
]


class BrowseBatches(Page, forbid_unknown_fields=True):
    """Which batches to list."""

    after: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64, description="Only batches with greater numbers.")] = 0


class BatchView(msgspec.Struct):
    """A sealed batch of the archive. It never changes until all its messages are removed at once."""

    number: int
    row_count: int
    digest: str
    sealed_at: Timestamp
    remove_at: Timestamp
    removed_at: Timestamp | None
    removal: RemovalCause | None
    digest_version: DigestVersionNumber


class BatchPage(msgspec.Struct):
    """Batches by number; `next_cursor` is null on the last page."""

    items: list[BatchView]
    next_cursor: str | None


class BatchCopy(msgspec.Struct, forbid_unknown_fields=True):
    """A client's copy of a batch."""

    number: BatchNumber
    row_count: RowCount
    digest: BatchDigest


class TrimArchive(msgspec.Struct, forbid_unknown_fields=True):
    """The batches that the client has copied."""

    batches: Annotated[list[BatchCopy], msgspec.Meta(min_length=1, max_length=MAX_TRIMMED_BATCHES)]

    def copies(self) -> list[CopiedBatch]:
        """Return the copies as the broker takes them."""
        return [CopiedBatch(batch.number, batch.row_count, batch.digest) for batch in self.batches]


class TrimmedBatch(msgspec.Struct):
    """The result of one batch."""

    number: int
    result: TrimResult


class ArchiveTrimmed(msgspec.Struct):
    """The result of each batch, in the order of the request."""

    batches: list[TrimmedBatch]


def batch_page(batches: Sequence[ArchiveBatch], limit: int) -> BatchPage:
    """Build a page of at most `limit` batches; one batch more shows that another page exists."""
    more = str(batches[limit - 1].number) if len(batches) > limit else None
    return BatchPage([_batch_view(batch) for batch in batches[:limit]], more)


def archive_trimmed(copies: Sequence[CopiedBatch], results: Sequence[TrimResult]) -> ArchiveTrimmed:
    """Build the response; it has fewer results than copies if the time ran out."""
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
