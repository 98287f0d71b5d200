"""Bodies of messages: bytes in the broker, text for SQS."""

from base64 import b64encode
from hashlib import md5
from typing import NamedTuple

from app.sqs.errors import InvalidMessageContents, MissingParameter
from app.sqs.xml_text import xml_bytes, xml_text

CONTENT_TYPE = "text/plain; charset=utf-8"
"""The media type of a body that was sent through SQS. Other receivers get it as text."""
ENCODING_ATTRIBUTE = "peeklock.encoding"
"""The message attribute, of type String, that says how to decode a body."""
BASE64 = "base64"
"""Its value."""


class BodyText(NamedTuple):
    """The body of a message as SQS shows it."""

    text: str
    is_base64: bool


def body_bytes(text: str) -> bytes:
    """Return the bytes to store for a body.

    Refuses with `MissingParameter` an empty body, and with `InvalidMessageContents` characters that XML does not allow.
    """
    if not text:
        raise MissingParameter("The request must contain the parameter MessageBody.")
    body = xml_bytes(text)
    if body is None:
        raise InvalidMessageContents
    return body


def body_text(body: bytes) -> BodyText:
    """Return the stored body of any message as text: bytes that are no text of XML in base64, JSON as its text.

    A message without a body has an empty text, which no sender of SQS can send.
    """
    text = xml_text(body)
    return BodyText(b64encode(body).decode(), is_base64=True) if text is None else BodyText(text, is_base64=False)


def md5_of_body(text: str) -> str:
    """Return MD5OfBody, or MD5OfMessageBody, in hexadecimal. It protects from errors of transport, not from attackers."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()
