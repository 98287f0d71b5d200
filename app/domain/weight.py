"""Message weights: the bytes that bound responses, statements and buffers."""

from collections.abc import Iterable
from typing import Protocol

from app.domain.message import Envelope, MessageMetadata, SelectedMessage

MESSAGE_OVERHEAD_BYTES = 2 << 10
"""Bytes of a message besides its body and properties: its other fields, and the objects that hold them."""

MAX_RESPONSE_BYTES = 8 << 20
"""The largest weight of the messages in one response, and in one claiming statement: a thousand of 6 KiB fit."""


class _Content(Protocol):
    """A message before or after it is stored."""

    @property
    def envelope(self) -> Envelope: ...

    @property
    def body(self) -> bytes: ...


def weight_of(message: _Content) -> int:
    """Return the bytes that a message counts for."""
    return MESSAGE_OVERHEAD_BYTES + len(message.body) + len(message.envelope.properties)


def select_message(metadata: MessageMetadata) -> SelectedMessage:
    """Summarise a message whose metadata was read, with the weight of the whole message."""
    return SelectedMessage(
        metadata.sequence_number,
        metadata.queue_id,
        metadata.state,
        metadata.priority,
        metadata.available_at,
        metadata.lock_token,
        MESSAGE_OVERHEAD_BYTES + metadata.body_bytes + len(metadata.envelope.properties),
    )


def content_bytes(message: SelectedMessage) -> int:
    """Return the bytes of the body and properties of a message."""
    return message.weight - MESSAGE_OVERHEAD_BYTES


def count_that_fit(weights: Iterable[int], budget: int) -> int:
    """Return how many of these messages, in order, fit into the budget: at least one, if any is given.

    The SQL of claims restates this rule.
    """
    count = total = 0
    for weight in weights:
        total += weight
        if count and total > budget:
            break
        count += 1
    return count
