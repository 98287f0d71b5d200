"""Errors of the JSON decoder, as a JSON pointer and a sentence that helps: which field, what it must be, what it was."""

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from app.domain.refusals import FieldError, InvalidRequest, MissingField
from app.domain.suggestions import did_you_mean
from app.wire.field_types import END_OF_TEXT
from app.wire.type_lookup import choices, field_names, tag_fields, types_at
from app.wire.values import pointer_segment

PATH_MARKER = " - at `"
"""The text between the sentence and the path. A request can contain it too, so the last one counts."""
PATH_PATTERN = re.compile(r" - at (`key` in )?`\$((?:\.[A-Za-z_0-9]+|\[[0-9]+\]|\[\.\.\.\])*+)`")

UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
MISSING = "Object missing required field"
MISSING_FIELD = re.compile(rf"{MISSING} `([A-Za-z_0-9]+)`")
INVALID_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
WRONG_TYPE = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`")
OUT_OF_BOUNDS = re.compile(r"Expected `([a-z |]+)` (>=|<=|>|<) ([0-9.e+-]+)")
WRONG_LENGTH = re.compile(r"Expected `([a-z |]+)` of length (>=|<=) ([0-9]+)")
WRONG_TEXT = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
"""The sentences of the decoder. Each is matched as a whole: elsewhere its words may be quoted from the request."""

TYPE_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "datetime": "a time as in RFC 3339",
}
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
UNITS = {"array": ("entry", "entries"), "object": ("member", "members"), "str": ("character", "characters")}
FIXED = {
    "Invalid RFC3339 encoded datetime": "must be a time as in RFC 3339, such as 2030-01-01T00:00:00Z",
    "Expected `datetime` with a timezone component": "must be a time with an offset, such as 2030-01-01T00:00:00Z",
    "Number out of range": "is out of range",
    "Expected `str`": "must be a string",
}
"""What is wrong with a field, for sentences of the decoder without a part that varies."""

HEADER = "#/header/"
_MAX_QUOTED = 100
"""Characters of a wrong name or value that are repeated."""


class Place(NamedTuple):
    """Where a fault is: the field in words, and the types that are possible there."""

    subject: str
    types: Sequence[inspect.Type]


def invalid_request(
    error: msgspec.DecodeError, shape: Any, whole: str = "The body", locate: Callable[[str], str] = str
) -> InvalidRequest:
    """Build the refusal for an error of the decoder of this shape.

    `whole` names what was decoded, and `locate` converts a pointer into it to one into the request.
    """
    kind = MissingField if str(error).startswith(MISSING) else InvalidRequest
    return kind(field_errors=[FieldError(*pointer_and_detail(str(error), shape, whole, locate))])


def pointer_and_detail(
    text: str, shape: Any, whole: str = "The body", locate: Callable[[str], str] = str
) -> tuple[str, str]:
    """Convert an error of the decoder to a JSON pointer and a sentence, as `invalid_request` does. Takes linear time."""
    match = PATH_PATTERN.fullmatch(text, max(text.rfind(PATH_MARKER), 0))
    sentence = text[: match.start()] if match else text
    path, is_name = (match[2], match[1] is not None) if match else ("", False)
    pointer = path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
    place = Place(_subject(path, whole, is_name, locate(pointer)), types_at(path, shape))
    # The sentence names a missing or unknown field; the path is that of its object.
    if unknown := UNKNOWN_FIELD.fullmatch(sentence):
        return locate(pointer + pointer_segment(unknown[1])), _unknown_field(place, unknown[1])
    if missing := MISSING_FIELD.fullmatch(sentence):
        return locate(pointer + pointer_segment(missing[1])), f"{place.subject} needs the field `{missing[1]}`."
    return locate(pointer), _described(place, sentence)


def _subject(path: str, whole: str, is_name: bool, pointer: str) -> str:
    """Return the words for the value at this path: a header has another name than its field."""
    name = pointer.removeprefix(HEADER) if pointer.startswith(HEADER) else path.replace("[...]", "").removeprefix(".")
    subject = f"`{name}`" if name else whole
    if is_name:
        return f"A name in {subject}"
    return f"A value in {subject}" if path.endswith("[...]") else subject


def _described(place: Place, sentence: str) -> str:
    for pattern, describe in DESCRIPTIONS.items():
        if found := pattern.fullmatch(sentence):
            return f"{place.subject} {describe(place, found)}."
    return f"{place.subject} {FIXED[sentence]}." if sentence in FIXED else f"{sentence}."


def _unknown_field(place: Place, name: str) -> str:
    names, tags = field_names(place.types), tag_fields(place.types)
    if tags and name in names:
        return f"{place.subject} has no field `{name}`. It belongs to another {_joined(tags, 'or')}."
    return f"{place.subject} has no field `{shortened(name)}`.{did_you_mean(name, names) or _listed_fields(names)}"


def _listed_fields(names: Sequence[str]) -> str:
    return f" Its fields are {_joined(names, 'and')}." if names else ""


def _choice(place: Place, found: re.Match[str]) -> str:
    possible = choices(place.types)
    must = f"must be {_joined(possible, 'or')}" if possible else "must be one of the possible values"
    return f"{must}, not {shortened(found[1])}"


def _type(_place: Place, found: re.Match[str]) -> str:
    return f"must be {_type_names(found[1])}, not {_type_names(found[2])}"


def _bound(_place: Place, found: re.Match[str]) -> str:
    return (
        f"must be {_type_names(found[1].removesuffix(' | null'))} of {BOUNDS[found[2]]} {found[3].removesuffix('.0')}"
    )


def _length(_place: Place, found: re.Match[str]) -> str:
    one, many = next(units for kind, units in UNITS.items() if kind in found[1])
    return f"must have {BOUNDS[found[2]]} {found[3]} {one if found[3] == '1' else many}"


def _pattern(_place: Place, found: re.Match[str]) -> str:
    """Describe the pattern as the document has it; the decoder quotes Python's, with every backslash doubled."""
    return f"must match the pattern '{str(ast.literal_eval(found[1])).replace(END_OF_TEXT, '$')}'"


DESCRIPTIONS: dict[re.Pattern[str], Callable[[Place, re.Match[str]], str]] = {
    WRONG_TYPE: _type,
    OUT_OF_BOUNDS: _bound,
    WRONG_LENGTH: _length,
    WRONG_TEXT: _pattern,
    INVALID_CHOICE: _choice,
}


def shortened(quoted: str) -> str:
    """Return the part of a name or value from a request that a refusal repeats."""
    return quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]} [...]"


def _type_names(names: str) -> str:
    return _alternatives([TYPE_NAMES.get(name, name) for name in names.split(" | ")])


def _joined(names: Iterable[str], word: str) -> str:
    return _alternatives([f"`{name}`" for name in names], word)


def _alternatives(names: Sequence[str], word: str = "or") -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
