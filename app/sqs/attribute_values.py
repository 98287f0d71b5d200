"""One message attribute: its name, its type and its value, and whether SQS allows them."""

import re
from base64 import b64decode
from typing import Literal, TypeAlias

from app.domain.dead_letters import SOURCE_PROPERTY
from app.domain.message import MAX_ID_LENGTH
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidMessageContents
from app.sqs.number_values import is_number
from app.sqs.shapes.messages import AttributeValue
from app.sqs.xml_text import quoted, xml_bytes

Kind: TypeAlias = Literal["String", "Number", "Binary"]

KINDS: dict[str, Kind] = {"String": "String", "Number": "Number", "Binary": "Binary"}
_MAX_TYPE_LENGTH = 256
NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_RESERVED_PREFIXES = ("aws.", "amazon.")


def is_attribute_name(name: str) -> bool:
    """Return whether a message attribute may have this name.

    SQS allows 256 characters, and Peeklock 128. The property with the queue of a dead letter is the system attribute
    DeadLetterQueueSourceArn, not a message attribute.
    """
    return (
        len(name) <= MAX_ID_LENGTH
        and NAME.fullmatch(name) is not None
        and not name.lower().startswith(_RESERVED_PREFIXES)
        and name != SOURCE_PROPERTY
    )


def kind_of(data_type: str) -> Kind | None:
    """Return the kind of value that a type such as `Number.int` has; None if SQS does not allow the type.

    The label after the dot may have all characters that XML allows.
    """
    kind, dot, label = data_type.partition(".")
    if len(data_type) > _MAX_TYPE_LENGTH or (dot and not label) or xml_bytes(label) is None:
        return None
    return KINDS.get(kind)


def is_binary(text: str) -> bool:
    """Return whether a text is the base64, with padding, of at least one byte."""
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def check_attribute(name: str, attribute: AttributeValue) -> tuple[Kind, str]:
    """Return the kind and the text of an attribute.

    Refuses with `InvalidRequest` a name, a type or a value that SQS does not allow, and with `InvalidMessageContents` a
    text that XML does not.
    """
    if not is_attribute_name(name):
        raise InvalidRequest(
            f"The message attribute name {quoted(name)} is invalid. A name has 1 to {MAX_ID_LENGTH} letters, digits, "
            "underscores, hyphens and single dots between them, does not begin with AWS. or Amazon., and is not "
            f"{SOURCE_PROPERTY}."
        )
    return check_value(name, attribute)


def check_value(name: str, attribute: AttributeValue) -> tuple[Kind, str]:
    """Return the kind and the text of an attribute with a known name. Refuses as `check_attribute` does."""
    kind = kind_of(attribute.data_type)
    if kind is None:
        raise InvalidRequest(
            f"The type of message attribute {quoted(name)} is invalid. It is String, Number or Binary, with an optional label "
            f"after a dot, in at most {_MAX_TYPE_LENGTH} characters."
        )
    text, other, member = attribute.string_value, attribute.binary_value, "StringValue"
    if kind == "Binary":
        text, other, member = other, text, "BinaryValue"
    if text is None or other is not None:
        raise InvalidRequest(f"Message attribute {quoted(name)} of type {kind} must have {member} and no other value.")
    if not text:
        raise InvalidRequest(f"Message attribute {quoted(name)} must have a value that is not empty.")
    _check_text(name, kind, text)
    return kind, text


def _check_text(name: str, kind: Kind, text: str) -> None:
    if kind == "Binary" and not is_binary(text):
        raise InvalidRequest(f"The BinaryValue of message attribute {quoted(name)} is not base64.")
    if kind == "Number" and not is_number(text):
        raise InvalidRequest(
            f"The StringValue of message attribute {quoted(name)} is not a number of at most 38 digits between 10^-128 and "
            "10^126."
        )
    if kind == "String" and xml_bytes(text) is None:
        raise InvalidMessageContents(f"Message attribute {quoted(name)} has characters that XML does not allow.")
