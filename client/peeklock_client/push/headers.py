"""The headers by which a push gives the fields of a message. Their names and forms are those of a raw receive.

A text that is not visible ASCII is percent-encoded, in a header whose name ends with `*` (RFC 8187). So no field can end a
header or begin another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from peeklock_client.messages import Message
from peeklock_client.push.raw_messages import properties_of

Headers = list[tuple[bytes, bytes]]

MAX_BYTES = 6 << 10
"""The largest headers of one message. Many servers refuse a head of more than 8 KiB, and the request has other headers."""

FIELDS = (
    "sequence_number", "delivery_count", "failure_count", "redelivered", "priority", "enqueued_at", "available_at",
    "expires_at", "first_delivered_at", "dead_lettered_at", "message_id", "group_id", "correlation_id", "subject", "to",
    "reply_to", "last_failure", "dead_letter_reason", "dead_letter_description",
)  # fmt: skip
"""Short fields first, because a field that does not fit is left out."""

EXTENDED_PREFIX = "UTF-8''"
VISIBLE_ASCII = range(0x20, 0x7F)


def message_headers(queue: str, message: Message[Any]) -> Headers:
    """Return the fields of a message that have a value. `peeklock-omitted` names those that do not fit."""
    headers: Headers = []
    omitted: list[str] = []
    left = MAX_BYTES
    for field, name, value in _fields(queue, message):
        size = len(name) + len(value) + len(": \r\n")
        if size > left:
            omitted.append(field)
        else:
            left -= size
            headers.append((name, value))
    if omitted:
        headers.append((b"peeklock-omitted", ", ".join(omitted).encode()))
    return headers


def _fields(queue: str, message: Message[Any]) -> Iterator[tuple[str, bytes, bytes]]:
    yield ("queue", *text_header("peeklock-queue", queue))
    for field in FIELDS:
        value = getattr(message, field)
        if value is not None:
            yield (field, *text_header(f"peeklock-{field.replace('_', '-')}", text_of(value)))
    if properties := properties_of(message):
        yield "properties", b"peeklock-properties", ascii_json(properties)


def text_of(value: object) -> str:
    """Return a field as text: times in UTC as RFC 3339, truth values as in JSON."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_header(name: str, text: str) -> tuple[bytes, bytes]:
    """Return a header with a text: as it is if it is visible ASCII, and otherwise in the form of RFC 8187."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return name.encode(), text.encode()
    return f"{name}*".encode(), (EXTENDED_PREFIX + quote(text, safe="", errors="replace")).encode()


def ascii_json(content: bytes) -> bytes:
    """Return JSON with an escape for each character that a header cannot have. Outside of strings, it has only spaces."""
    return "".join(_escaped(character) for character in content.decode()).strip().encode()


def _escaped(character: str) -> str:
    number = ord(character)
    if number in VISIBLE_ASCII:
        return character
    if number < 0x20:  # white space between the values, because JSON allows no such character in a string
        return " "
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
