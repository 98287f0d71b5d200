"""The shapes of the wire as schemas of OpenAPI 3.1, so that generated clients come out named and typed."""

from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from app.wire import locks, retry, sending, shapes

Schema: TypeAlias = dict[str, Any]

REF = "#/components/schemas/{name}"

NAMED: Mapping[str, Any] = {
    "Settlement": locks.Settlement,
    "SettlementResult": locks.SettlementResult,
    "SendResult": sending.SendResult,
    "RetrySettings": retry.RetrySettings,
    "Properties": shapes.Properties,
    "MessageState": shapes.StateName,
    "SettlementOutcome": locks.SettledOutcome,
}
"""Shapes that Python knows under a mere alias; left nameless, a generator would invent a name at every use."""

FORMATS = {"integer": "int64", "number": "double"}
INT64 = {"minimum": shapes.SMALLEST_INT64, "maximum": shapes.LARGEST_INT64}


def reference(shape: type[msgspec.Struct]) -> Schema:
    """The schema of a struct where it is used."""
    return {"$ref": REF.format(name=shape.__name__)}


class Schemas:
    """The schemas of everything that callers ask and hear."""

    def __init__(self, asked: Iterable[Any], answered: Iterable[Any]) -> None:
        asked, answered = list(asked), list(answered)
        self._aliases = {name: _schema(shape) for name, shape in NAMED.items()}
        _, self._found = msgspec.json.schema_components([*asked, *answered, *NAMED.values()], ref_template=REF)
        for shape in _structs(answered) - _structs(asked):
            self._found[shape.__name__] = _as_answered(shape, self._found[shape.__name__])

    def components(self) -> dict[str, Schema]:
        """Every schema by its name."""
        named = {name: self._tidy(schema, called=name) for name, schema in self._aliases.items()}
        return dict(sorted({**named, **{name: self._tidy(schema) for name, schema in self._found.items()}}.items()))

    def demands(self, shape: type[msgspec.Struct]) -> bool:
        """Whether a body of this shape must say something, so that it cannot be left out."""
        return bool(self._found[shape.__name__].get("required"))

    def members(self, shape: type[msgspec.Struct]) -> dict[str, Schema]:
        """The schemas of a struct's fields, for those that come as parameters, which cannot be null."""
        _, found = msgspec.json.schema_components([shape], ref_template=REF)
        return {name: self._tidy(_not_null(member)) for name, member in found[shape.__name__]["properties"].items()}

    def _tidy(self, schema: Schema, called: str | None = None) -> Schema:
        """The schema as the document has it, with references to what has a name."""
        for name, alias in self._aliases.items():
            if schema == alias and name != called:
                return {"$ref": REF.format(name=name)}
        tidy = {key: self._part(key, value) for key, value in schema.items() if _is_worth_saying(key, value)}
        if "discriminator" in tidy:
            tidy["oneOf"] = tidy.pop("anyOf")
        if "enum" in tidy:
            tidy = {"type": "string", **tidy}
        if (kind := tidy.get("type")) in FORMATS:
            tidy["format"] = FORMATS[kind]
        return tidy

    def _part(self, key: str, value: Any) -> Any:
        match key:
            case "properties":
                return {name: self._tidy(member) for name, member in value.items()}
            case "items" | "propertyNames" | "additionalProperties":
                # False where nothing more is allowed.
                return value and self._tidy(value)
            case "anyOf":
                return [self._tidy(member) for member in value]
            case "description":
                return cleandoc(value)
            case "pattern":
                return str(value).replace(shapes.THE_END, "$")
            case _:
                return value


def _schema(shape: Any) -> Schema:
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=REF)
    return schema


def _is_worth_saying(key: str, value: Any) -> bool:
    """Not a title that repeats the name, an absent default, an empty list, or the bounds of 64 bits."""
    if key in INT64:
        return value != INT64[key]
    return key != "title" and (key, value) not in (("default", None), ("required", []))


def _as_answered(shape: type[msgspec.Struct], schema: Schema) -> Schema:
    """A schema as answers keep to it: a default is left out, or always there, and never null for want of a value."""
    members: dict[str, Schema] = schema["properties"]
    if shape.__struct_config__.omit_defaults:
        return {**schema, "properties": {name: _not_null(member) for name, member in members.items()}}
    members = {
        name: {key: part for key, part in member.items() if key != "default"} for name, member in members.items()
    }
    return {**schema, "properties": members, "required": list(members)}


def _not_null(schema: Schema) -> Schema:
    """The schema without null, where that is an absent default."""
    if schema.get("default", ...) is not None:
        return schema
    kept = [member for member in schema["anyOf"] if member != {"type": "null"}]
    return kept[0] if len(kept) == 1 else {**schema, "anyOf": kept}


def _structs(shapes_: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Every struct that these shapes are made of."""
    return {found.cls for info in inspect.multi_type_info(shapes_) for found in _walk(info)}


def _walk(info: inspect.Type) -> Iterator[inspect.StructType]:
    match info:
        case inspect.Metadata():
            yield from _walk(info.type)
        case inspect.StructType():
            yield info
            for field in info.fields:
                yield from _walk(field.type)
        case inspect.UnionType():
            for member in info.types:
                yield from _walk(member)
        case inspect.ListType():
            yield from _walk(info.item_type)
        case _:
            pass
