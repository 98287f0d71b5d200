"""Values that a shape alone cannot vouch for; each refuses with `InvalidRequest` and says where."""

import base64
from datetime import datetime

from app.domain.instant import Instant
from app.domain.refusals import Fault, InvalidRequest
from app.wire.shapes import LATEST
from app.wire.times import from_wire


def at(pointer: str, detail: str) -> InvalidRequest:
    """The refusal of what stands at this JSON pointer."""
    return InvalidRequest(faults=[Fault(pointer, detail)])


def step(name: str) -> str:
    """What leads from an object to its member of this name in a JSON pointer (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def due_time(moment: datetime, pointer: str) -> Instant:
    """The instant of a due time."""
    if moment > LATEST:
        raise at(pointer, f"No message is due after {LATEST:%Y}.")
    return from_wire(moment)


def says_json(content_type: str | None) -> bool:
    """Whether a media type is one of JSON."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


def base64_bytes(text: str, pointer: str) -> bytes:
    """The bytes of standard base64 with its padding."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise at(pointer, "This is not base64.") from None
