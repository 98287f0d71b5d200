"""The types of a decoded shape: those at a path, their fields and their choices."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from msgspec import inspect

STEP_PATTERN = re.compile(r"\.([A-Za-z_0-9]+)|\[(?:[0-9]+|\.\.\.)\]")
"""A step of the decoder's paths: a field, or an entry of a list or object."""


def types_at(path: str, shape: Any) -> list[inspect.Type]:
    """Return the types that are possible at a path of the decoder, such as `.retry.delays_seconds[0]`."""
    types = [_type_info(shape)]
    for step in STEP_PATTERN.finditer(path):
        types = [inner for outer in types for inner in _inner_types(outer, step[1])]
    return types


def field_names(types: Iterable[inspect.Type]) -> list[str]:
    """Return the names of the fields of all structs among these types."""
    return list(dict.fromkeys(field.encode_name for struct in _structs(types) for field in struct.fields))


def tag_fields(types: Iterable[inspect.Type]) -> list[str]:
    """Return the names of the fields that say which of these types an object is."""
    return list(dict.fromkeys(struct.tag_field for struct in _structs(types) if struct.tag_field is not None))


def choices(types: Iterable[inspect.Type]) -> list[str]:
    """Return the values of all enumerations among these types."""
    found: list[str] = []
    for info in members(types):
        if isinstance(info, inspect.LiteralType):
            found += map(str, info.values)
        elif isinstance(info, inspect.EnumType):
            found += [str(member.value) for member in info.cls]
    return list(dict.fromkeys(found))


@cache
def _type_info(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _structs(types: Iterable[inspect.Type]) -> list[inspect.StructType]:
    return [info for info in members(types) if isinstance(info, inspect.StructType)]


def _inner_types(info: inspect.Type, name: str | None) -> list[inspect.Type]:
    """Return the types of a field, or those of the entries of a list or object if there is no name."""
    match info:
        case inspect.Metadata():
            return _inner_types(info.type, name)
        case inspect.UnionType():
            return [inner for member in info.types for inner in _inner_types(member, name)]
        case inspect.StructType() if info.tag_field == name:
            return [inspect.LiteralType((info.tag,))]
        case inspect.StructType():
            return [field.type for field in info.fields if field.encode_name == name]
        case inspect.ListType() | inspect.VarTupleType():
            return [info.item_type]
        case inspect.DictType():
            return [info.value_type]
        case _:
            return []


def members(types: Iterable[inspect.Type]) -> list[inspect.Type]:
    """Return these types without the unions and constraints around them."""
    found: list[inspect.Type] = []
    for info in types:
        match info:
            case inspect.Metadata():
                found += members([info.type])
            case inspect.UnionType():
                found += members(info.types)
            case _:
                found.append(info)
    return found
