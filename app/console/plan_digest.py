"""The digest of a plan for some messages. A form carries it, so that a plan is carried out as it was shown or not at all."""

from collections.abc import Sequence
from hashlib import blake2b

from app.domain.message import Message, MessageMetadata
from app.domain.queue import Queue


def plan_digest(action: str, queue: Queue, messages: Sequence[Message | MessageMetadata]) -> str:
    """Return the digest of a plan: that of the action, and of what can change in its messages."""
    parts = [
        (
            message.sequence_number,
            message.state.value,
            message.priority,
            message.available_at,
            message.delivery_count,
            message.failure_count,
            message.dead_lettered_at,
            message.dead_letter_reason,
            message.envelope.properties,
        )
        for message in messages
    ]
    return blake2b(repr((action, queue.id, parts)).encode(), digest_size=16).hexdigest()
