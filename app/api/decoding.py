"""From bytes to shapes; whatever does not fit is refused with the place of the fault."""

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from app.domain.message import MOST_PROPERTIES
from app.domain.refusals import Fault, InvalidRequest
from app.wire.shapes import THE_END, Properties
from app.wire.values import step

Shape = TypeVar("Shape", bound=msgspec.Struct)

WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`$", re.DOTALL)
IN_MAP = re.compile(r"^(?:Expected|Number) .* - at (?:`key` in `\$.*|`\$.*\[\.\.\.\])`$")
FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(.*)`$", re.DOTALL)
HALF_A_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
WHOLE = re.compile(r"-?[0-9]+")
PATTERN = re.compile(r"^(Expected `str` matching regex )(.*)$", re.DOTALL)

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_properties = msgspec.json.Decoder(Properties, strict=False).decode


def body_decoder(shape: Any) -> Callable[[bytes], Any]:
    """What reads a body: None takes none, `bytes` any; everything else is JSON, where an empty body stands for `{}`."""
    if shape is None:
        return lambda raw: None
    if shape is bytes:
        return lambda raw: raw
    decode = msgspec.json.Decoder(shape).decode

    def decoded(raw: bytes) -> Any:
        try:
            # What the shape keeps as it is, the decoder passes over unread: so its encoding is checked here.
            raw.decode()
            return decode(raw or b"{}")
        except UnicodeDecodeError:
            raise InvalidRequest(faults=[Fault("", "The body is not UTF-8.")]) from None
        except RecursionError:
            raise InvalidRequest(faults=[Fault("", "The body is nested too deeply.")]) from None
        except msgspec.ValidationError as error:
            raise invalid(error, partial(_named, error, raw)) from None
        except msgspec.DecodeError as error:
            raise _half_a_pair(raw) or invalid(error) from None

    return decoded


def is_json(raw: bytes) -> bool:
    """Whether these bytes are one JSON value that every reader can take in."""
    try:
        raw.decode()
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return False
    return True


def query_decoder(shape: Any) -> Callable[[bytes], Any]:
    """What reads a query string; a list takes its parameter again and again, everything else once."""
    if shape is None:
        return lambda query: None
    lists = {field.name for field in msgspec.structs.fields(shape) if _is_list(field.type)}

    def decoded(query: bytes) -> Any:
        values: dict[str, Any] = {}
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name in lists:
                values.setdefault(name, []).append(value)
            elif values.setdefault(name, value) is not value:
                raise InvalidRequest(faults=[Fault(f"#/query/{name}", "This parameter is given more than once.")])
        return converted(values, shape, lambda pointer: f"#/query{pointer}")

    return decoded


def converted(values: Mapping[str, Any], shape: type[Shape], locate: Callable[[str], str]) -> Shape:
    """Texts as a shape; `locate` says where in the request the value at a pointer was found."""
    for name in _whole_numbers(shape) & values.keys():
        if isinstance(values[name], str) and WHOLE.fullmatch(values[name]) is None:
            raise InvalidRequest(faults=[Fault(locate(f"/{name}"), "Expected `int`, without a fraction or exponent.")])
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        named = partial(_named, error, msgspec.json.encode(values))
        raise invalid(error, lambda pointer: locate(named(pointer))) from None


def invalid(error: msgspec.DecodeError, locate: Callable[[str], str] = str) -> InvalidRequest:
    """The refusal of what a decoder complains about."""
    pointer, detail = pointer_and_detail(str(error))
    return InvalidRequest(faults=[Fault(locate(pointer), detail)])


def pointer_and_detail(complaint: str) -> tuple[str, str]:
    """A decoder's complaint, split into the JSON pointer of the fault and what is wrong there."""
    found = WHERE.search(complaint)
    detail = complaint[: found.start()] if found else complaint
    pointer = _pointer(found.group(1)) if found else ""
    # A missing or unknown field is named in the sentence, at the object it should be in.
    if field := FIELD.match(detail):
        pointer += step(field.group(1))
    return pointer, PATTERN.sub(_as_published, detail) + "."


def _half_a_pair(raw: bytes) -> InvalidRequest | None:
    """The refusal of half a surrogate pair, which the decoder takes for the end of the text."""
    if HALF_A_PAIR.search(raw) is None:
        return None
    return InvalidRequest(
        faults=[Fault("", "A \\u escape is half of a surrogate pair, and the other half is missing.")]
    )


def _as_published(complaint: re.Match[str]) -> str:
    """A pattern as the OpenAPI document has it; the decoder quotes Python's, with every backslash doubled."""
    return complaint[1] + "'" + str(ast.literal_eval(complaint[2])).replace(THE_END, "$") + "'"


def _named(error: msgspec.ValidationError, raw: bytes, pointer: str) -> str:
    """The pointer of a fault, down to the name in a map of properties, which the decoder does not tell."""
    if IN_MAP.search(str(error)) is None:
        return pointer
    try:
        properties = _properties_at(raw, pointer)
    except (msgspec.DecodeError, LookupError, RecursionError):
        # The decoder stopped at the fault, and what comes after may be no JSON, or the same name once more.
        return pointer
    # With more of them than a message may have, the map itself is at fault too, and each look costs time.
    names = properties if len(properties) <= MOST_PROPERTIES else ()
    return pointer + next((step(name) for name in names if not _is_property(name, properties[name])), "")


def _properties_at(raw: bytes, pointer: str) -> dict[str, msgspec.Raw]:
    for word in pointer.split("/")[1:]:
        raw = bytes(_decode_items(raw)[int(word)] if word.isdigit() else _decode_members(raw)[word])
    return _decode_members(raw)


def _is_property(name: str, value: msgspec.Raw) -> bool:
    try:
        _decode_properties(msgspec.json.encode({name: value}))
    except msgspec.DecodeError:
        return False
    return True


def _pointer(path: str) -> str:
    """`.messages[3].priority` as `/messages/3/priority`."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")


@cache
def _whole_numbers(shape: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that hold an integer. The decoder would also take `6.0` for one in a text, which it does not in JSON."""
    return frozenset(field.name for field in msgspec.structs.fields(shape) if _is_whole(field.type))


def _is_whole(annotation: Any) -> bool:
    return _holds_whole(msgspec.inspect.type_info(annotation))


def _holds_whole(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _holds_whole(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_holds_whole, kind.types))
    return isinstance(kind, msgspec.inspect.IntType)


def _is_list(annotation: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.ListType)
