"""Properties as rows of a form: the name, the type and the value of each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.console.typed_properties import typed_properties
from app.domain.refusals import InvalidRequest, invalid_at

NAME, TYPE, VALUE = "property_name", "property_type", "property_value"
FIELDS = (NAME, TYPE, VALUE)
"""The fields of a row. A form has each once for every row."""

TEXT, ESCAPED, NUMBER, BOOLEAN, NULL = "text", "text with escapes", "number", "true or false", "null"
TYPES = (TEXT, NUMBER, BOOLEAN, NULL, ESCAPED)
"""The types. A text with escapes is written as between quotes in JSON, because a field cannot hold line breaks."""

JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class PropertyRow:
    """One row, as it was typed or as a property is written."""

    name: str = ""
    type: str = TEXT
    value: str = ""


def property_rows(stored: bytes) -> Sequence[PropertyRow]:
    """Return the rows of properties that are stored as JSON."""
    return [_row(one.name, one.type, one.value) for one in typed_properties(stored)]


def sent_rows(sent: Sequence[tuple[str, str]]) -> Sequence[PropertyRow]:
    """Return the rows of a form, without those that are empty. Refuses with `InvalidRequest` fields that make no rows."""
    names, types, values = ([text for name, text in sent if name == wanted] for wanted in FIELDS)
    if not len(names) == len(types) == len(values):
        raise InvalidRequest("Each property of this form has a name, a type and a value.")
    return [PropertyRow(*row) for row in zip(names, types, values, strict=True) if row[0] or row[2]]


def json_of(rows: Sequence[PropertyRow]) -> msgspec.Raw:
    """Return the properties of rows as JSON. Refuses with `InvalidRequest` at `/property_N` the first row that makes none."""
    members: dict[str, msgspec.Raw] = {}
    for number, row in enumerate(rows):
        name = _unescaped(row.name, number) if row.type == ESCAPED else row.name
        if not name:
            raise _fault(number, "Give this property a name.")
        if name in members:
            raise _fault(number, "Another row has this name.")
        members[name] = msgspec.Raw(_value(row, number))
    return msgspec.Raw(msgspec.json.encode(members))


def _row(name: str, type_name: str, value: str) -> PropertyRow:
    if type_name == NULL:
        return PropertyRow(name, NULL)
    if type_name != TEXT:
        return PropertyRow(name, type_name, value)
    text = msgspec.json.decode(value, type=str)
    if CONTROLS.search(name + text):
        return PropertyRow(_escaped(name), ESCAPED, _escaped(text))
    return PropertyRow(name, TEXT, text)


def _value(row: PropertyRow, number: int) -> bytes:
    text = row.value.strip()
    match row.type:
        case "text":
            return msgspec.json.encode(row.value)
        case "text with escapes":
            return msgspec.json.encode(_unescaped(row.value, number))
        case "number" if JSON_NUMBER.fullmatch(text):
            return text.encode()
        case "number":
            raise _fault(number, "Write a number, such as 17 or 0.5.")
        case "true or false" if text in ("true", "false"):
            return text.encode()
        case "true or false":
            raise _fault(number, "Write true or false.")
        case "null" if text in ("", "null"):
            return b"null"
        case "null":
            raise _fault(number, "Null has no value. Choose another type, or leave the value empty.")
        case _:
            raise _fault(number, f"A property is of one of these types: {', '.join(TYPES)}.")


def _escaped(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _unescaped(text: str, number: int) -> str:
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except (msgspec.DecodeError, UnicodeError):
        raise _fault(
            number, 'This is not a text with escapes: write a line break as \\n, and a quote as \\".'
        ) from None


def _fault(number: int, sentence: str) -> InvalidRequest:
    return invalid_at(f"/property_{number}", sentence)
