"""Checks of values that a schema cannot express. Each refuses with `InvalidRequest` and a JSON pointer."""

import base64
from datetime import datetime

from app.domain.instant import Instant
from app.domain.refusals import invalid_at
from app.wire.field_types import MAX_DUE_TIME
from app.wire.times import from_wire


def pointer_segment(name: str) -> str:
    """Return the segment of a JSON pointer for an object member of this name (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def due_time(time: datetime, pointer: str) -> Instant:
    """Convert a due time to an instant. Refuses times after `MAX_DUE_TIME`."""
    if time > MAX_DUE_TIME:
        raise invalid_at(pointer, f"No message is due after {MAX_DUE_TIME:%Y}.")
    return from_wire(time)


def base64_bytes(text: str, pointer: str) -> bytes:
    """Decode standard base64 with padding. Refuses other text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise invalid_at(pointer, "This is not base64.") from None
