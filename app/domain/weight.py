"""What messages weigh: the bytes by which answers, statements and buffers are bounded."""

from app.domain.message import Draft, Message

ROW_BYTES = 2 << 10
"""What a message takes beside its body and properties: its other fields, and the objects that hold them."""


def weight_of(message: Draft | Message) -> int:
    """The bytes that a message counts for."""
    return ROW_BYTES + len(message.body) + len(message.envelope.properties)
