"""Errors of the JSON decoder, as a JSON pointer and a sentence."""

import ast
import re

import msgspec

from app.domain.refusals import InvalidRequest, invalid_at
from app.wire.field_types import END_OF_TEXT
from app.wire.values import pointer_segment

PATH_MARKER = " - at `"
"""The text between the sentence and the path. A request can contain it too, so the last one counts."""
PATH_PATTERN = re.compile(r" - at (?:`key` in )?`\$((?:\.[a-z_0-9]+|\[[0-9]+\]|\[\.\.\.\])*+)`")
FIELD_PATTERN = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)
REGEX_PATTERN = re.compile(r"(Expected `str` matching regex )(.*)", re.DOTALL)
"""Matched against the whole sentence: elsewhere in it these words are quoted from the request."""


def invalid_request(error: msgspec.DecodeError, prefix: str = "") -> InvalidRequest:
    """Build the refusal for an error of the decoder, in a value at the JSON pointer `prefix`."""
    pointer, detail = pointer_and_detail(str(error))
    return invalid_at(prefix + pointer, detail)


def pointer_and_detail(text: str) -> tuple[str, str]:
    """Split an error of the decoder into a JSON pointer and a description. Takes linear time."""
    match = PATH_PATTERN.fullmatch(text, max(text.rfind(PATH_MARKER), 0))
    detail = text[: match.start()] if match else text
    pointer = _pointer(match[1]) if match else ""
    # The sentence names a missing or unknown field; the path is that of its object.
    if field := FIELD_PATTERN.fullmatch(detail):
        pointer += pointer_segment(field[1])
    if pattern := REGEX_PATTERN.fullmatch(detail):
        detail = f"{pattern[1]}'{_openapi_pattern(pattern[2])}'"
    return pointer, detail + "."


def _openapi_pattern(quoted: str) -> str:
    """Convert a pattern to that of the OpenAPI document; the decoder quotes Python's, with every backslash doubled."""
    return str(ast.literal_eval(quoted)).replace(END_OF_TEXT, "$")


def _pointer(path: str) -> str:
    """Convert a path to a JSON pointer: `.messages[3].priority` becomes `/messages/3/priority`."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
