"""Values that a shape alone cannot vouch for; each refuses with `InvalidRequest` and says where."""

import base64
from datetime import datetime

from app.domain.instant import Instant
from app.domain.refusals import FieldError, InvalidRequest
from app.wire.field_types import MAX_DUE_TIME
from app.wire.times import from_wire


def invalid_at(pointer: str, detail: str) -> InvalidRequest:
    """The refusal of what stands at this JSON pointer."""
    return InvalidRequest(field_errors=[FieldError(pointer, detail)])


def pointer_segment(name: str) -> str:
    """What leads from an object to its member of this name in a JSON pointer (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def due_time(moment: datetime, pointer: str) -> Instant:
    """The instant of a due time."""
    if moment > MAX_DUE_TIME:
        raise invalid_at(pointer, f"No message is due after {MAX_DUE_TIME:%Y}.")
    return from_wire(moment)


def is_json_media_type(content_type: str | None) -> bool:
    """Whether a media type is one of JSON."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


def base64_bytes(text: str, pointer: str) -> bytes:
    """The bytes of standard base64 with its padding."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise invalid_at(pointer, "This is not base64.") from None
