"""Plans: what a request would do to many messages now, computed without doing it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.instant import Instant
from app.domain.message import MessageMetadata, MessageState

MAX_SAMPLE_SIZE = 10
"""Messages that a plan shows."""


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """A message in the sample of a plan, without its body and properties, so that a sample stays small."""

    sequence_number: int
    message_id: str
    state: MessageState
    priority: int
    enqueued_at: Instant
    subject: str | None
    dead_letter_reason: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request would do now: how many messages, their bytes of bodies and properties, and the first of them.

    `is_complete` is False if the time ended first. Then `count` and `bytes` are those of the messages seen so far.
    """

    count: int
    bytes: int
    sample: Sequence[MessageSummary]
    is_complete: bool


def summarize(message: MessageMetadata) -> MessageSummary:
    """Return the part of a message that a plan shows."""
    return MessageSummary(
        message.sequence_number,
        message.envelope.message_id,
        message.state,
        message.priority,
        message.enqueued_at,
        message.envelope.headers.subject,
        message.dead_letter_reason,
    )
