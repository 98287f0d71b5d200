"""From bytes to shapes; whatever does not fit is refused with the place of the fault."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from app.domain.refusals import Fault, InvalidRequest
from app.wire.shapes import THE_END

Shape = TypeVar("Shape")

WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`$", re.DOTALL)
FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(.*)`$", re.DOTALL)
HALF_A_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
AS_SHOWN = (repr(THE_END)[1:-1], "$")


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
            raise invalid(error) from None
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
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, locate) from None


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
        pointer += "/" + field.group(1).replace("~", "~0").replace("/", "~1")
    return pointer, detail.replace(*AS_SHOWN) + "."


def _half_a_pair(raw: bytes) -> InvalidRequest | None:
    """The refusal of half a surrogate pair, which the decoder takes for the end of the text."""
    if HALF_A_PAIR.search(raw) is None:
        return None
    return InvalidRequest(
        faults=[Fault("", "A \\u escape is half of a surrogate pair, and the other half is missing.")]
    )


def _pointer(path: str) -> str:
    """`.messages[3].priority` as `/messages/3/priority`; a key of a map is not told by the decoder."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")


def _is_list(annotation: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.ListType)
