"""Text that XML can carry: what SQS accepts in bodies and attributes, because its older protocol answers in XML."""

_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r"))
_FFFE, _FFFF = "\ufffe".encode(), "\uffff".encode()


def xml_bytes(text: str) -> bytes | None:
    """Return the UTF-8 of a text; None if it has a character that XML 1.0 does not allow."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return encoded if _is_allowed(encoded) else None


def xml_text(encoded: bytes) -> str | None:
    """Return the text of UTF-8; None if it is not UTF-8 or has a character that XML 1.0 does not allow."""
    try:
        text = encoded.decode()
    except UnicodeDecodeError:
        return None
    return text if _is_allowed(encoded) else None


def _is_allowed(encoded: bytes) -> bool:
    """Return whether XML allows all characters of this UTF-8. Deleting and searching bytes is faster than a pattern."""
    return len(encoded.translate(None, _CONTROLS)) == len(encoded) and _FFFE not in encoded and _FFFF not in encoded
