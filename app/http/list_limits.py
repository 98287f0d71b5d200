"""Check the lengths of the lists and objects in a body before the decoder builds them.

The decoder builds a list or an object before it compares the length with the limit. A request can hold millions of entries,
and an entry of two bytes of JSON costs many times that in memory.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect

UNCHECKED_COMMAS = 10_000
"""A body with fewer commas need not be checked, because its lists are small."""

MAX_OBJECT_BYTES = 128 << 10
"""Bytes of an object with a limit of members: more than the 16 KiB of labels have with an escape for each character.

An entry of a batch that is not larger need not be checked, because its lists are small too. It limits no request."""


class LimitedLists(msgspec.Struct):
    """The lists and objects with limits in a struct, and the structs with such fields."""


def list_limit_checker(shape: Any) -> Callable[[bytes], object] | None:
    """Return a function that raises `msgspec.ValidationError` if a list or an object in a body of this shape is too long.

    None if they have no limits.
    """
    limited = _limited_fields(inspect.type_info(shape))
    if not limited:
        return None
    decode = msgspec.json.Decoder(_struct(limited)).decode
    return lambda raw: _check_objects(decode(raw), "$")


def _check_objects(found: Any, path: str) -> None:
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, msgspec.Raw) and len(memoryview(value)) > MAX_OBJECT_BYTES:
            raise msgspec.ValidationError(f"Expected at most {MAX_OBJECT_BYTES} bytes - at `{path}.{name}`")
        if isinstance(value, LimitedLists):
            _check_objects(value, f"{path}.{name}")


def _limited_fields(info: inspect.Type) -> dict[str, Any]:
    """Return the fields that contain a list with a limit, by their JSON names."""
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
    """Return a type that limits the entries of a field, None for a field without limits."""
    limits = [
        member.max_length
        for member in union_members(info)
        if isinstance(member, inspect.ListType | inspect.VarTupleType) and member.max_length
    ]
    if limits:
        return _bounded_array(max(limits)) | None
    if any(isinstance(member, inspect.DictType) and member.max_length for member in union_members(info)):
        return msgspec.Raw  # also takes null, and a union with None would take nothing else
    nested = _limited_fields(info)
    return _struct(nested) | None if nested else None


def union_members(info: inspect.Type) -> list[inspect.Type]:
    """Return the members of a union, or the type itself."""
    match info:
        case inspect.Metadata():
            return union_members(info.type)
        case inspect.UnionType():
            return [member for option in info.types for member in union_members(option)]
        case _:
            return [info]


def _struct(fields: dict[str, Any]) -> Any:
    """Return a struct with only these fields. The decoder skips all others without building them."""
    return msgspec.defstruct(
        "LimitedFields", [(name, field, None) for name, field in fields.items()], bases=(LimitedLists,)
    )


@cache
def _bounded_array(limit: int) -> Any:
    """Return an array type of at most `limit` entries. The decoder stops at the first entry beyond it and builds none."""
    entries = [(f"entry_{number}", msgspec.Raw, msgspec.Raw()) for number in range(limit)]
    return cast("Any", msgspec.defstruct("AtMost", entries, array_like=True, forbid_unknown_fields=True))
