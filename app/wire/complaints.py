"""What the decoder complains about, as a JSON pointer and a sentence."""

import ast
import re

import msgspec

from app.domain.refusals import Fault, InvalidRequest
from app.wire.shapes import THE_END
from app.wire.values import step

AT = " - at `"
"""What stands between the sentence and the path. A request can quote it too, so the last one counts."""
PATH = re.compile(r" - at (?:`key` in )?`\$((?:\.[a-z_0-9]+|\[[0-9]+\]|\[\.\.\.\])*+)`")
FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)
PATTERN = re.compile(r"(Expected `str` matching regex )(.*)", re.DOTALL)


def invalid(error: msgspec.DecodeError, prefix: str = "") -> InvalidRequest:
    """The refusal of what a decoder complains about, in a value that stands at `prefix`."""
    pointer, detail = pointer_and_detail(str(error))
    return InvalidRequest(faults=[Fault(prefix + pointer, detail)])


def pointer_and_detail(complaint: str) -> tuple[str, str]:
    """A complaint, split into the JSON pointer of the fault and what is wrong there. Takes linear time."""
    found = PATH.fullmatch(complaint, max(complaint.rfind(AT), 0))
    detail = complaint[: found.start()] if found else complaint
    pointer = _pointer(found[1]) if found else ""
    # The sentence names a missing or unknown field; the path leads to its object.
    if field := FIELD.fullmatch(detail):
        pointer += step(field[1])
    return pointer, PATTERN.sub(_as_published, detail) + "."


def _as_published(complaint: re.Match[str]) -> str:
    """A pattern as the OpenAPI document has it; the decoder quotes Python's, with every backslash doubled."""
    return complaint[1] + "'" + str(ast.literal_eval(complaint[2])).replace(THE_END, "$") + "'"


def _pointer(path: str) -> str:
    """`.messages[3].priority` as `/messages/3/priority`."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
