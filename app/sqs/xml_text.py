"""Text that XML can carry: what SQS accepts in bodies and attributes, because its older protocol answers in XML."""

from app.wire.decode_errors import shortened

_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r"))
_FFFE, _FFFF = "\ufffe", "\uffff"


def xml_bytes(text: str) -> bytes | None:
    """Return the UTF-8 of a text; None if it has a character that XML 1.0 does not allow."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return encoded if _is_allowed(text, encoded) else None


def xml_text(encoded: bytes) -> str | None:
    """Return the text of UTF-8; None if it is not UTF-8 or has a character that XML 1.0 does not allow."""
    try:
        text = encoded.decode()
    except UnicodeDecodeError:
        return None
    return text if _is_allowed(text, encoded) else None


def quoted(name: str) -> str:
    """Return a name from a request as a refusal repeats it: in quotation marks, in ASCII, and shortened."""
    return ascii(shortened(name))


def _is_allowed(text: str, encoded: bytes) -> bool:
    """Return whether XML allows all characters of a text. Deleting bytes of its UTF-8 is faster than a pattern."""
    return len(encoded.translate(None, _CONTROLS)) == len(encoded) and _FFFE not in text and _FFFF not in text
