"""What messages weigh: the bytes by which answers, statements and buffers are bounded."""

from collections.abc import Iterable

from app.domain.message import Chosen, Draft, Message, Outline

ROW_BYTES = 2 << 10
"""What a message takes beside its body and properties: its other fields, and the objects that hold them."""

LARGEST_ANSWER = 8 << 20
"""What the messages of one answer, and of one statement that claims, weigh at most: a thousand of 6 KiB fit."""


def weight_of(message: Draft | Message) -> int:
    """The bytes that a message counts for."""
    return ROW_BYTES + len(message.body) + len(message.envelope.properties)


def chosen(outline: Outline) -> Chosen:
    """What is kept of a message of which only the outline was read, with the weight of the whole message."""
    return Chosen(
        outline.sequence_number,
        outline.queue_id,
        outline.state,
        outline.priority,
        outline.available_at,
        outline.lock_token,
        ROW_BYTES + outline.body_bytes + len(outline.envelope.properties),
    )


def fitting(weights: Iterable[int], budget: int) -> int:
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
