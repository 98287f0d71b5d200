"""Which attributes an event in a batch may have (CloudEvents 1.0.2, 3).

A receiver that parses them refuses the whole batch for one that it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime

from peeklock_client.events import ATTRIBUTES, EXTENSION_NAME

FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane | last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
    + "]"
)
"""Control characters and the noncharacters of Unicode."""

SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
URI_REFERENCE = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):|(?![^/?#]*:))"
    rf"(?://(?:{SEGMENT}|[\[\]])*+(?:/(?:{SEGMENT}|/)*+)?|(?!//)(?:{SEGMENT}|/)*+)"
    rf"(?:\?(?:{SEGMENT}|[/?])*+)?(?:#(?:{SEGMENT}|[/?])*+)?"
)
"""RFC 3986, 4.1. Without a scheme, the first segment has no colon."""

RFC3339_TIME = re.compile(r"([0-9-]{10})[Tt ]([0-9:]{8})(?:\.[0-9]+)?(?:[Zz]|([+-][0-9]{2}:[0-9]{2}))")
TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
MEDIA_TYPE = re.compile(rf"{TOKEN}/{TOKEN} *(?:;[\x20-\x7e]*)?")


def is_attribute(name: str, value: object) -> bool:
    """Return whether an event may have this attribute. The body is its data, and no attribute is."""
    if isinstance(value, str) and FORBIDDEN_CHARACTERS.search(value):
        return False
    if name in ATTRIBUTES:
        return isinstance(value, str) and bool(value) and FORMATS.get(name, bool)(value)
    is_extension = EXTENSION_NAME.fullmatch(name) is not None and name != "data"
    is_int32 = isinstance(value, int) and -(1 << 31) <= value < 1 << 31
    return is_extension and (is_int32 or isinstance(value, str))


def is_media_type(text: str) -> bool:
    """Return whether this is a media type, with parameters or without."""
    return MEDIA_TYPE.fullmatch(text) is not None


def _is_uri_reference(text: str) -> bool:
    return URI_REFERENCE.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    match = URI_REFERENCE.fullmatch(text)
    return match is not None and match["scheme"] is not None


def _is_time(text: str) -> bool:
    """Return whether this is a time of RFC 3339. `datetime` alone would accept other formats too."""
    match = RFC3339_TIME.fullmatch(text)
    if match is None:
        return False
    date, time, offset = match.groups(default="")
    try:
        datetime.fromisoformat(f"{date}T{time}{offset}")
    except ValueError:
        return False
    return True


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "source": _is_uri_reference,
    "dataschema": _is_uri,
    "time": _is_time,
    "datacontenttype": is_media_type,
}
