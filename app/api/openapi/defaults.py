"""Defaults of fields in the document: in words for people, and as a value for programs that generate code."""

import json
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec.structs import FieldInfo, fields

STATED_DEFAULT = "x-peeklock-default"
"""The default of a field as a value. Generated types demand members that have a `default`, so the document has this one."""


def stated_defaults(
    shape: type[msgspec.Struct], members: dict[str, dict[str, Any]], required: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the schemas of a struct's fields, each that is not required with its default. A constant keeps its own."""
    values = {field.encode_name: _default_of(field) for field in fields(shape) if field.encode_name not in required}
    return {
        name: _stated(member, values[name]) if _has_default(member, values.get(name, UNSET)) else member
        for name, member in members.items()
    }


def _default_of(field: FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _has_default(member: dict[str, Any], value: Any) -> bool:
    """Return whether a client could send this default: UNSET is no value, and null only where the field may be null."""
    return value is not UNSET and "const" not in member and (value is not None or "null" in member.get("type", ()))


def _stated(member: dict[str, Any], value: Any) -> dict[str, Any]:
    described = member["description"]
    if "default" in member:
        described += f" Default: `{json.dumps(member['default'])}`."
    kept = {key: part for key, part in member.items() if key != "default"}
    return {**kept, "description": described, STATED_DEFAULT: msgspec.to_builtins(value)}
