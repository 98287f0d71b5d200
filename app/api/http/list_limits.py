"""Counts the entries of a body's lists before the lists are built.

The decoder builds a list first and compares its length with the limit afterwards. Millions of entries fit into a
request, and each costs many times more memory than its two bytes of JSON.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect

UNCHECKED_COMMAS = 10_000
"""With fewer commas than this a body is not counted: what they can build is small."""


def list_limit_checker(shape: Any) -> Callable[[bytes], None]:
    """What raises `msgspec.ValidationError` as soon as a list in a body of this shape passes its limit."""
    limited = _limited_fields(inspect.type_info(shape))
    if not limited:
        return lambda raw: None
    decode = msgspec.json.Decoder(_struct(limited)).decode

    def count(raw: bytes) -> None:
        if raw.count(b",") >= UNCHECKED_COMMAS:
            decode(raw)

    return count


def _limited_fields(info: inspect.Type) -> dict[str, Any]:
    """The fields that lead to a list with a limit, by their names on the wire."""
    match info:
        case inspect.Metadata():
            return _limited_fields(info.type)
        case inspect.UnionType():
            return {name: field for member in info.types for name, field in _limited_fields(member).items()}
        case inspect.StructType():
            fields = {field.encode_name: _limited_type(field.type) for field in info.fields}
            return {name: field for name, field in fields.items() if field is not None}
        case _:
            return {}


def _limited_type(info: inspect.Type) -> Any:
    """The type of a field that counts its entries; None where there is nothing to count."""
    limits = [one.max_length for one in union_members(info) if isinstance(one, inspect.ListType) and one.max_length]
    if limits:
        return _bounded_array(max(limits)) | None
    nested = _limited_fields(info)
    return _struct(nested) | None if nested else None


def union_members(info: inspect.Type) -> list[inspect.Type]:
    """The types that a value of this type may have."""
    match info:
        case inspect.Metadata():
            return union_members(info.type)
        case inspect.UnionType():
            return [member for one in info.types for member in union_members(one)]
        case _:
            return [info]


def _struct(fields: dict[str, Any]) -> Any:
    """A shape with these fields alone; the decoder passes over all others without building them."""
    return msgspec.defstruct("CountingTally", [(name, field, None) for name, field in fields.items()])


@cache
def _bounded_array(limit: int) -> Any:
    """An array of a given length. The decoder stops at the first entry beyond it, and builds no entry."""
    entries = [(f"place_{number}", msgspec.Raw, msgspec.Raw()) for number in range(limit)]
    return cast("Any", msgspec.defstruct("AtMost", entries, array_like=True, forbid_unknown_fields=True))
