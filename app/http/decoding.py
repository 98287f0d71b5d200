"""Decode bodies into structs. A refusal points at the fault."""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from app.domain.json_depth import TOO_DEEP, is_too_deep
from app.domain.refusals import FieldError, InvalidRequest, invalid_at
from app.http.list_limits import MAX_OBJECT_BYTES, UNCHECKED_COMMAS, list_limit_checker, union_members
from app.wire.decode_errors import invalid_request

Shape = TypeVar("Shape", bound=msgspec.Struct)

LONE_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
UTF8 = getincrementaldecoder("utf-8")

_TAIL_BYTES = 64
"""Bytes searched at the end of a body for half a surrogate pair, which the decoder reports as truncated input."""

_MAX_NULL_BYTES = 16
"""Bytes of a body that may be `null` between blanks."""

EMPTY = "The body is empty. Send a JSON object; {} has every default."
RAW_SEND = "To send a body as it is, use POST .../messages/raw."
"""Follows what is wrong with the body of a message that is not JSON."""

TRUNCATED = "Input data was truncated"
"""The decoder's words for a body that ends too early."""

_ENCODING_BLOCK_BYTES = 64 << 10
"""Bytes whose encoding is checked at a time. As text, each may take four bytes of memory."""

DECODING_ERRORS = (UnicodeDecodeError, msgspec.DecodeError)
"""What decoding JSON may raise, once its depth is checked."""

INTEGER = re.compile(r"-?[0-9]+")


@cache
def body_decoder(shape: Any, *, is_message: bool = False) -> Callable[[bytes], Any]:
    """Return the decoder of a body: None accepts none, `bytes` accepts any, other shapes are JSON.

    An empty body and `null` are `{}`, or are refused with `InvalidRequest` in a send of one message.
    """
    if shape is None:
        return lambda raw: None
    if shape is bytes:
        return lambda raw: raw
    check_lists = list_limit_checker(shape)
    decode = msgspec.json.Decoder(shape).decode

    def decoded(raw: bytes) -> Any:
        try:
            # The decoder skips raw members without checking their encoding. ASCII is UTF-8.
            if not raw.isascii():
                _check_encoding(raw)
            if is_too_deep(raw):
                raise invalid_at("", TOO_DEEP)
            if check_lists is not None and raw.count(b",") >= UNCHECKED_COMMAS:
                check_lists(raw)
            # Some generated clients send `null` in place of an empty body.
            if raw and (len(raw) > _MAX_NULL_BYTES or raw.strip() != b"null"):
                return decode(raw)
            if is_message:
                raise invalid_at("", EMPTY)
            return decode(b"{}")
        except DECODING_ERRORS as error:
            raise _invalid_json(raw, error, shape, "The body", RAW_SEND if is_message else "") from None

    return decoded


@cache
def entry_decoder(shape: Any) -> Callable[[bytes], Any]:
    """Return the decoder of an entry of a list. Its encoding and depth have been checked with those of its body."""
    check_lists = list_limit_checker(shape)
    decode = msgspec.json.Decoder(shape).decode

    def decoded(raw: bytes) -> Any:
        try:
            if check_lists is not None and len(memoryview(raw)) > MAX_OBJECT_BYTES:
                check_lists(raw)
            return decode(raw)
        except DECODING_ERRORS as error:
            raise _invalid_json(raw, error, shape, "The entry") from None

    return decoded


def is_json(raw: bytes, pointer: str = "") -> bool:
    """Return whether these bytes are one JSON value in UTF-8. Refuses at `pointer` JSON that is nested too deeply."""
    if is_too_deep(raw):
        raise invalid_at(pointer, TOO_DEEP)
    try:
        _check_encoding(raw)
        msgspec.json.decode(raw, type=msgspec.Raw)
    except DECODING_ERRORS:
        return False
    return True


@cache
def entry_counter(shape: Any) -> Callable[[Any], int] | None:
    """Return a function that counts the entries of the lists in a decoded body that become messages or other objects.

    None if the body has no such list.
    """
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return None
    lists = [field.name for field in msgspec.structs.fields(shape) if _may_be_list_of_objects(field.type)]
    if not lists:
        return None

    def count(body: Any) -> int:
        entries = 0
        for name in lists:
            value = getattr(body, name)
            if isinstance(value, list):
                entries += len(cast("list[Any]", value))
        return entries

    return count


def convert(values: Mapping[str, Any], shape: type[Shape], locate: Callable[[str], str], whole: str) -> Shape:
    """Convert texts to a struct. Refuses with `InvalidRequest`.

    `locate` maps a pointer into the struct to the place in the request, and `whole` names what has the texts.
    """
    for name in _integer_fields(shape) & values.keys():
        if isinstance(values[name], str) and INTEGER.fullmatch(values[name]) is None:
            raise InvalidRequest(
                field_errors=[
                    FieldError(locate(f"/{name}"), f"`{name}` must be an integer, without a fraction or exponent.")
                ]
            )
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_request(error, shape, whole, locate) from None


def _check_encoding(raw: bytes) -> None:
    """Raise `UnicodeDecodeError` if a body is not UTF-8."""
    decoder, view = UTF8(), memoryview(raw)
    for start in range(0, len(raw), _ENCODING_BLOCK_BYTES):
        decoder.decode(view[start : start + _ENCODING_BLOCK_BYTES], final=start + _ENCODING_BLOCK_BYTES >= len(raw))


def _invalid_json(
    raw: bytes,
    error: UnicodeDecodeError | msgspec.DecodeError,
    shape: Any,
    whole: str,
    advice: str = "",
) -> InvalidRequest:
    """Return the refusal of a body, or of an entry of a list, for one of the `DECODING_ERRORS`.

    `advice` follows what is wrong with bytes that are not JSON.
    """
    if isinstance(error, UnicodeDecodeError):
        return invalid_at("", f"{whole} is not UTF-8. {advice}".rstrip())
    if isinstance(error, msgspec.ValidationError):
        return invalid_request(error, shape, whole)
    cause = "it ends too early" if str(error) == TRUNCATED else str(error).removeprefix("JSON is malformed: ")
    return _lone_surrogate(raw) or invalid_at("", f"{whole} is not JSON: {cause}. {advice}".rstrip())


def _lone_surrogate(raw: bytes) -> InvalidRequest | None:
    """Return the refusal of half a surrogate pair at the end of a body, which the decoder reports as truncated input.

    Elsewhere the decoder reports the pair itself, so only the end is searched.
    """
    if LONE_SURROGATE.search(raw, max(0, len(raw) - _TAIL_BYTES)) is None:
        return None
    return InvalidRequest(
        field_errors=[FieldError("", "A \\u escape is half of a surrogate pair, and the other half is missing.")]
    )


@cache
def _integer_fields(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the integer fields. In texts the decoder would accept `6.0` for them, as it does not in JSON."""
    return frozenset(field.name for field in msgspec.structs.fields(shape) if _is_integer(field.type))


def _is_integer(annotation: Any) -> bool:
    return _may_be_integer(msgspec.inspect.type_info(annotation))


def _may_be_integer(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _may_be_integer(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_may_be_integer, kind.types))
    return isinstance(kind, msgspec.inspect.IntType)


def _may_be_list_of_objects(annotation: Any) -> bool:
    lists = [
        member
        for member in union_members(msgspec.inspect.type_info(annotation))
        if isinstance(member, msgspec.inspect.ListType)
    ]
    items = [item for found in lists for item in union_members(found.item_type)]
    return any(isinstance(item, msgspec.inspect.StructType | msgspec.inspect.RawType) for item in items)
