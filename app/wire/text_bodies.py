"""Text bodies: stored as bytes with a media type of text, and given in JSON as a string."""

import re

import msgspec

from app.wire.media_types import is_json_media_type

TEXT_CHARSETS = ("utf-8", "us-ascii")
LONG_IN_JSON = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
"""Characters that JSON writes with six bytes instead of one. Text without them is at most twice as long in JSON."""


def text_of(content: bytes, content_type: str | None) -> str | None:
    """Return the text of a body of bytes; None if it is none, or if only base64 keeps it short."""
    if not _is_text_media_type(content_type):
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if LONG_IN_JSON.search(text) else text


def bytes_of_text(body: bytes, content_type: str) -> bytes | None:
    """Return the bytes to store for a JSON value that `text_of` will read as the same text; None for other values."""
    if not (body.startswith(b'"') and _is_text_media_type(content_type)):
        return None
    text = msgspec.json.decode(body, type=str)
    return None if LONG_IN_JSON.search(text) else text.encode()


def _is_text_media_type(content_type: str | None) -> bool:
    """Return whether a media type is text in UTF-8, and not JSON, as `text/x+json` is."""
    if is_json_media_type(content_type):
        return False
    essence, *parameters = (content_type or "").lower().split(";")
    named = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in named if name.strip() == "charset"]
    return essence.strip().startswith("text/") and all(charset in TEXT_CHARSETS for charset in charsets)
