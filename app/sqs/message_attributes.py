"""Message attributes of SQS are properties of the broker: the mapping both ways, the selection, and the MD5."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import NamedTuple, TypeAlias

import msgspec

from app.sqs.attribute_values import check_attribute, is_attribute_name, is_binary, kind_of
from app.sqs.number_values import is_number, property_of_number, text_of_number
from app.sqs.shapes.messages import AnsweredValue, AttributeValue
from app.sqs.xml_text import xml_bytes
from app.wire.field_types import PropertyValue

TYPES_PROPERTY = "sqs:attributes"
"""The property with what the other properties do not say about attributes, as the text of a JSON object.

A member has the name of an attribute, and its type if the property has its text: `{"count": "Number.int"}`. If the
property has not, the member has both: `{"price": ["Number", "1.10"]}`.
"""

Kept: TypeAlias = str | tuple[str, str]
_encode = msgspec.json.Encoder().encode
_decode_kept = msgspec.json.Decoder(dict[str, Kept]).decode


class AttributeSelection(NamedTuple):
    """Which message attributes a receiver asks for."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    def matches(self, name: str) -> bool:
        """Return whether the receiver asks for the attribute of this name."""
        return name in self.names or name.startswith(self.prefixes)


EVERY_ATTRIBUTE = AttributeSelection(frozenset(), ("",))


def selection_of(names: Sequence[str]) -> AttributeSelection | None:
    """Return the selection by `MessageAttributeNames`; None if no attribute is asked for.

    `All`, `*` and `.*` ask for all. `foo.*` asks for all that begin with `foo`, as SQS does. Names that no attribute has
    are ignored, as SQS does.
    """
    if not names:
        return None
    if not {"All", "*"}.isdisjoint(names):
        return EVERY_ATTRIBUTE
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return AttributeSelection(frozenset(names), prefixes)


def properties_of_attributes(attributes: Mapping[str, AttributeValue]) -> dict[str, PropertyValue]:
    """Return the properties of a message with these attributes, from which the same attributes come back.

    A String is a text, a Number is a number if JSON has one of the same value, and a Binary is a text in base64.
    Refuses with `InvalidRequest` and `InvalidMessageContents` what SQS does not allow.
    """
    properties: dict[str, PropertyValue] = {}
    kept: dict[str, Kept] = {}
    for name, attribute in attributes.items():
        kind, text = check_attribute(name, attribute)
        value = property_of_number(text) if kind == "Number" else text
        properties[name] = value
        if _text_of(value) != text:
            kept[name] = (attribute.data_type, text)
        elif attribute.data_type != ("String" if isinstance(value, str) else "Number"):
            kept[name] = attribute.data_type
    if kept:
        properties[TYPES_PROPERTY] = _encode(kept).decode()
    return properties


def attributes_of_properties(
    properties: Mapping[str, PropertyValue], selection: AttributeSelection = EVERY_ATTRIBUTE
) -> dict[str, AnsweredValue]:
    """Return the selected attributes of a message with these properties, which any interface may have sent or changed.

    Without a type in `sqs:attributes`, a text, true and false are a String, and a number is a Number. A type that does not
    fit the property has no effect, so the value of the property always wins. Properties that SQS cannot have are left out:
    null, an empty text, a text with characters that XML does not allow, and names that SQS does not allow.
    """
    kept = _kept(properties.get(TYPES_PROPERTY))
    answered: dict[str, AnsweredValue] = {}
    for name, value in properties.items():
        if not selection.matches(name) or not is_attribute_name(name):
            continue
        attribute = _with_type(kept[name], value) if name in kept else None
        attribute = attribute or _without_type(value)
        if attribute is not None:
            answered[name] = attribute
    return answered


def md5_of_attributes(attributes: Mapping[str, AnsweredValue | AttributeValue]) -> str | None:
    """Return the MD5 of message attributes or of system attributes, in hexadecimal; None if a message has none.

    The algorithm is "Calculating the MD5 message digest for message attributes" in the guide of SQS.
    """
    if not attributes:
        return None
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        digest.update(_measured(name.encode()) + _measured(attribute.data_type.encode()))
        if attribute.binary_value is None:
            digest.update(b"\x01" + _measured((attribute.string_value or "").encode()))
        else:
            digest.update(b"\x02" + _measured(b64decode(attribute.binary_value)))
    return digest.hexdigest()


def _measured(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value


def _text_of(value: str | float) -> str:
    return value if isinstance(value, str) else text_of_number(value)


def _kept(types: PropertyValue) -> Mapping[str, Kept]:
    """Return the members of `sqs:attributes`; none if a sender has written something else into it."""
    if not isinstance(types, str):
        return {}
    try:
        return _decode_kept(types)
    except msgspec.DecodeError:
        return {}


def _with_type(kept: Kept, value: PropertyValue) -> AnsweredValue | None:
    """Return an attribute of the type that was kept for it; None if the value of the property does not fit."""
    if value is None or isinstance(value, bool):
        return None
    data_type, text = (kept, _text_of(value)) if isinstance(kept, str) else kept
    match kind_of(data_type):
        case "Number" if _is_number_of(value, text):
            return AnsweredValue(data_type=data_type, string_value=text)
        case "String" if value == text and _is_answerable(text):
            return AnsweredValue(data_type=data_type, string_value=text)
        case "Binary" if value == text and is_binary(text):
            return AnsweredValue(data_type=data_type, binary_value=text)
        case _:
            return None


def _is_number_of(value: str | float, text: str) -> bool:
    """Return whether a text is this number. A number that was sent natively may be larger than SQS allows."""
    if not isinstance(value, str) and text == text_of_number(value):
        return True
    return is_number(text) and property_of_number(text) == value


def _without_type(value: PropertyValue) -> AnsweredValue | None:
    if isinstance(value, bool):
        return AnsweredValue(data_type="String", string_value="true" if value else "false")
    if isinstance(value, str):
        return AnsweredValue(data_type="String", string_value=value) if _is_answerable(value) else None
    return None if value is None else AnsweredValue(data_type="Number", string_value=text_of_number(value))


def _is_answerable(text: str) -> bool:
    return bool(text) and xml_bytes(text) is not None
