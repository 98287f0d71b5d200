"""The MessageId and the SequenceNumber of a message, both made of its sequence number."""

_MARKER = "7065656b-6c6f-8000"
"""How every id begins: `peeklo` in ASCII, the version 8 of the UUID (RFC 9562), and zeros."""
_VARIANT = 1 << 63
_LAST_NODE = (1 << 48) - 1


def message_id_of(sequence_number: int) -> str:
    """Return a UUID of version 8 whose last 62 bits are the sequence number.

    No other message of this database ever has it, it stays when the message moves to another queue, and an operator reads
    the sequence number in it in hexadecimal.
    """
    last = _VARIANT | sequence_number
    return f"{_MARKER}-{last >> 48:04x}-{last & _LAST_NODE:012x}"


def sequence_number_text(sequence_number: int) -> str:
    """Return the SequenceNumber: 20 digits, so that texts sort as numbers do."""
    return f"{sequence_number:020d}"
