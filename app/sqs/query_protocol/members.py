"""The members of a struct, with their names in the query protocol."""

from functools import cache
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect

Shape = type[msgspec.Struct]


class Member(NamedTuple):
    """A member of a struct: its attribute in Python, its names in JSON and in the query protocol, and its type.

    `element` names the entries of a list or a map that are within an element of their own; None if the member itself is
    repeated. `key` and `value` name the parts of an entry of a map. `entry` is the struct of the entries of a list that are
    decoded one by one.
    """

    attribute: str
    json_name: str
    query_name: str
    element: str | None
    key: str
    value: str
    entry: Shape | None
    type: inspect.Type


@cache
def members(shape: Shape) -> tuple[Member, ...]:
    """Return the members of a struct in their order."""
    return tuple(_member(field) for field in cast("inspect.StructType", inspect.type_info(shape)).fields)


def _member(field: inspect.Field) -> Member:
    kind = field.type
    extra: dict[str, Any] = {}
    if isinstance(kind, inspect.Metadata):
        extra = cast("dict[str, Any]", kind.extra or {})  # pyright: ignore[reportUnknownMemberType]
        kind = kind.type
    return Member(
        field.name,
        field.encode_name,
        extra.get("query", field.encode_name),
        extra.get("element"),
        extra.get("key", "Name"),
        extra.get("value", "Value"),
        extra.get("entry"),
        kind,
    )
