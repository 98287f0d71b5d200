"""Dead letters that a queue forwards: they become available messages of another queue."""

from typing import Any

import msgspec

SOURCE_PROPERTY = "dead_letter_queue"
"""The property with the name of the queue that has forwarded a dead letter."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def with_source(properties: bytes, queue: str) -> bytes:
    """Return the properties with the name of the queue that forwards the message.

    The limits of a sender's properties do not apply: no message may stay in a dead-letter queue because of its name.
    """
    return _encode({**(_decode(properties) if properties else {}), SOURCE_PROPERTY: queue})


def source_of(properties: bytes) -> str | None:
    """Return the name of the queue that has forwarded the message as a dead letter, None if none has."""
    source = _decode(properties).get(SOURCE_PROPERTY) if properties else None
    return source if isinstance(source, str) else None
