"""Puts the schemas of the OpenAPI document into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from developing.reference import markdown
from developing.reference.contract import DOCUMENT, SCHEMAS, bounds

Schema = Mapping[str, Any]
HEADER = ("field", "type", "meaning")


def kind_of(schema: Schema) -> str:
    """Return the type of a value in words, with links to the types that it names."""
    if reference := schema.get("$ref"):
        return link(reference)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(kind_of(one) for one in schema[choice]))
    if isinstance(schema.get("type"), list):
        kind, _ = schema["type"]
        return f"{kind_of({**schema, 'type': kind})} or null"
    if "const" in schema:
        return markdown.code(f'"{schema["const"]}"' if isinstance(schema["const"], str) else str(schema["const"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    return _plain_kind(schema)


def fields_table(schema: Schema) -> str:
    """Return the table of an object's fields."""
    required = schema.get("required", ())
    rows = [
        (f"`{name}`{', required' if name in required else ''}", kind_of(field), field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]
    return markdown.table(HEADER, rows)


def resolve(part: Schema) -> Schema:
    """Return what a reference of the document names, or the part itself."""
    if "$ref" not in part:
        return part
    _, _, section, name = part["$ref"].split("/")
    return DOCUMENT["components"][section][name]


def link(reference: str) -> str:
    """Return the link to a type."""
    name = reference.rpartition("/")[2]
    return f"[{name}](http-types.md#{name.lower()})"


def is_object(name: str) -> bool:
    """Return whether a type is an object with named fields."""
    return "properties" in SCHEMAS[name]


def _plain_kind(schema: Schema) -> str:
    kind = schema.get("type")
    if kind is None:
        return "any JSON value"
    if kind == "array":
        return f"array of {kind_of(schema.get('items', {}))}" + _range(schema)
    if kind == "object":
        values = schema.get("additionalProperties")
        return (f"object of {kind_of(values)}" if isinstance(values, dict) and values else "object") + _range(schema)
    named = {"date-time": "time", "binary": "bytes"}.get(schema.get("format", ""), kind)
    encoded = f" in {schema['contentEncoding']}" if "contentEncoding" in schema else ""
    return f"{named}{encoded}{_range(schema)}"


def _range(schema: Schema) -> str:
    found = bounds(schema)
    return f" ({found})" if found else ""
