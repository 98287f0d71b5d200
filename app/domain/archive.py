"""The archive in batches: each is sealed once and never changes, so whoever copies it can say exactly what they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from app.domain.instant import MINUTE, Duration, Instant

BATCH_SPAN: Duration = MINUTE
"""The messages of a batch are to be removed within so long of each other, for they go together."""


class DigestVersion(IntEnum):
    """What the digest of a batch is taken of."""

    NUMBERS = 1
    """The sequence numbers of its messages (`digest_of_numbers`)."""
    ROWS = 2
    """Every exported column of its messages (`row_digest`, `digest_of_rows`)."""


CURRENT_DIGEST_VERSION = DigestVersion.ROWS
"""What new batches are sealed with; batches of both are served."""


class RemovalCause(StrEnum):
    """Why the messages of a batch are gone."""

    TRIMMED = "trimmed"
    """Somebody proved to have a copy."""
    EXPIRED = "expired"
    """Their retention has passed."""


class TrimResult(StrEnum):
    """What came of a wish to remove a batch before its time."""

    TRIMMED = "trimmed"
    ALREADY_REMOVED = "already_removed"
    DIFFERS = "differs"
    """The messages that are here are not those of the copy."""
    UNKNOWN = "unknown"
    TOO_YOUNG = "too_young"
    """Their lock tokens must still be known to whoever repeats a settlement."""


@dataclass(frozen=True, slots=True)
class UnsealedMessage:
    """An archived message in no batch: when it is to be removed, and how long ago it ended."""

    sequence_number: int
    remove_at: Instant
    age: Duration


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch holds at most, because it is sealed, read and removed as one; a single message always fits."""

    max_messages: int = 10_000
    max_body_bytes: int = 64 << 20


DEFAULT_BATCH_LIMITS = BatchLimits()


@dataclass(frozen=True, slots=True)
class BatchCandidate:
    """A message that may join a batch."""

    sequence_number: int
    remove_at: Instant
    body_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedBatch:
    """What somebody says they have of a batch."""

    number: int
    row_count: int
    digest: str


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """A sealed batch. `remove_at` is that of its last message; `removed_at` is None while its messages are there."""

    number: int
    row_count: int
    digest: str
    sealed_at: Instant
    remove_at: Instant
    removed_at: Instant | None = None
    removal: RemovalCause | None = None
    digest_version: int = DigestVersion.NUMBERS


@dataclass(frozen=True, slots=True)
class BatchContents:
    """What the rows of a batch give when they are counted and digested again, and how long ago the youngest ended."""

    row_count: int
    digest: str
    youngest_age: Duration


def fit_in_batch(candidates: Sequence[BatchCandidate], max_body_bytes: int) -> Sequence[BatchCandidate]:
    """The first of these messages, as far as their bodies have so many bytes together: at least one if there is any."""
    remaining = max_body_bytes
    for index, candidate in enumerate(candidates):
        remaining -= candidate.body_bytes
        if remaining < 0:
            return candidates[: max(index, 1)]
    return candidates


def trim_result(copy: CopiedBatch, sealed_digest: str, found: BatchContents, min_age: Duration) -> TrimResult:
    """Whether a batch may go because there is this copy: copy, rows and seal must agree, and no row be too young."""
    if (copy.row_count, copy.digest) != (found.row_count, found.digest) or found.digest != sealed_digest:
        return TrimResult.DIFFERS
    return TrimResult.TOO_YOUNG if found.youngest_age < min_age else TrimResult.TRIMMED
