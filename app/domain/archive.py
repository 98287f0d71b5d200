"""The archive in batches: each is sealed once and never changes, so that a copy can be compared with it exactly."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from app.domain.instant import MINUTE, Duration, Instant
from app.domain.message import Envelope
from app.domain.settlement import Outcome

BATCH_SPAN: Duration = MINUTE
"""The removal times of the messages in a batch differ by at most this, because the batch is removed as a whole."""


class DigestVersion(IntEnum):
    """What the digest of a batch covers."""

    NUMBERS = 1
    """The sequence numbers of its messages (`digest_of_numbers`)."""
    ROWS = 2
    """Every exported column of its messages (`row_digest`, `digest_of_rows`)."""
    HISTORIES = 3
    """The same, followed by every exported column of their events. Only batches with events have it."""


CURRENT_DIGEST_VERSION = DigestVersion.HISTORIES
"""The newest digest version of new batches; batches of every version are served."""


def digest_version_of(newest: DigestVersion, event_count: int) -> DigestVersion:
    """Return the digest version of a new batch with this number of events.

    A batch without events keeps the version that older servers and readers of copies know.
    """
    return min(newest, DigestVersion.HISTORIES if event_count else DigestVersion.ROWS)


class RemovalCause(StrEnum):
    """Why the messages of a batch were removed."""

    TRIMMED = "trimmed"
    """A client proved that it has a copy."""
    EXPIRED = "expired"
    """Their retention has passed."""


class TrimResult(StrEnum):
    """The result of a request to remove a batch before its retention ends."""

    TRIMMED = "trimmed"
    ALREADY_REMOVED = "already_removed"
    DIFFERS = "differs"
    """The stored messages differ from the copy or from the sealed batch."""
    UNKNOWN = "unknown"
    TOO_YOUNG = "too_young"
    """The messages ended recently: their lock tokens must stay known, to answer a repeated settlement."""


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message as it ended, without its body and properties. `queue` is the name of the queue that it was in last.

    `receiver_id` is the receiver of its last delivery.
    """

    sequence_number: int
    queue_id: int
    queue: str
    envelope: Envelope
    outcome: Outcome
    enqueued_at: Instant
    first_delivered_at: Instant | None
    settled_at: Instant
    receiver_id: str | None
    delivery_count: int
    failure_count: int


@dataclass(frozen=True, slots=True)
class UnsealedMessage:
    """An archived message in no batch: when to remove it, and how long ago it ended."""

    sequence_number: int
    remove_at: Instant
    age: Duration


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch, because it is sealed, read and removed as a whole. A single message always fits."""

    max_messages: int = 10_000
    max_body_bytes: int = 64 << 20
    max_events: int = 100_000


DEFAULT_BATCH_LIMITS = BatchLimits()


@dataclass(frozen=True, slots=True)
class CopiedBatch:
    """A client's copy of a batch: its number, row count and digest."""

    number: int
    row_count: int
    digest: str


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """A sealed batch. `remove_at` is that of its last message; `removed_at` is None until its messages are removed."""

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
    """The current row count and digest of a batch, and how long ago its youngest message ended."""

    row_count: int
    digest: str
    youngest_age: Duration


def restored_ttl(available_at: Instant, expires_at: Instant | None, settled_at: Instant) -> Duration | None:
    """Return the time to live of a message that is restored from the archive; None: it does not expire.

    A time to live that had not ended with the message begins again. One that had ended would end the message again.
    """
    if expires_at is None or expires_at <= max(available_at, settled_at):
        return None
    return expires_at - available_at


def trim_result(copy: CopiedBatch, sealed_digest: str, contents: BatchContents, min_age: Duration) -> TrimResult:
    """Decide whether a batch may be trimmed: copy, rows and sealed digest must agree, and no row may be too young."""
    if (copy.row_count, copy.digest) != (contents.row_count, contents.digest) or contents.digest != sealed_digest:
        return TrimResult.DIFFERS
    return TrimResult.TOO_YOUNG if contents.youngest_age < min_age else TrimResult.TRIMMED
