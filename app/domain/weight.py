"""What messages weigh: the bytes by which answers, statements and buffers are bounded."""

from collections.abc import Iterable

from app.domain.message import Draft, Message, MessageMetadata, SelectedMessage

MESSAGE_OVERHEAD_BYTES = 2 << 10
"""What a message takes beside its body and properties: its other fields, and the objects that hold them."""

MAX_RESPONSE_BYTES = 8 << 20
"""What the messages of one answer, and of one statement that claims, weigh at most: a thousand of 6 KiB fit."""


def weight_of(message: Draft | Message) -> int:
    """The bytes that a message counts for."""
    return MESSAGE_OVERHEAD_BYTES + len(message.body) + len(message.envelope.properties)


def select_message(metadata: MessageMetadata) -> SelectedMessage:
    """What is kept of a message of which only the outline was read, with the weight of the whole message."""
    return SelectedMessage(
        metadata.sequence_number,
        metadata.queue_id,
        metadata.state,
        metadata.priority,
        metadata.available_at,
        metadata.lock_token,
        MESSAGE_OVERHEAD_BYTES + metadata.body_bytes + len(metadata.envelope.properties),
    )


def count_that_fit(weights: Iterable[int], budget: int) -> int:
    """How many of these messages, in order, an answer has room for: at least one, where there is one.

    The statements that claim restate this.
    """
    count = total = 0
    for weight in weights:
        total += weight
        if count and total > budget:
            break
        count += 1
    return count
