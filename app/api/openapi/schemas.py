"""Convert the structs of `wire` to schemas of OpenAPI 3.1 that give generated clients named types."""

from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from app.api.openapi.defaults import stated_defaults
from app.wire import (
    capabilities,
    consumers,
    execution,
    field_types,
    keys,
    message_fields,
    messages,
    moves,
    problems,
    queue_patch,
    queues,
    retry,
    sending,
    settlements,
    topics,
    transactions,
)
from app.wire.field_descriptions import FieldDescriptions, meaning_of_type

Schema: TypeAlias = dict[str, Any]

REF_TEMPLATE = "#/components/schemas/{name}"

NAMED_TYPES: Mapping[str, Any] = {
    "Settlement": settlements.Settlement,
    "SettlementResult": settlements.SettlementResult,
    "TransactionSettlement": execution.SettleEntry,
    "SendResult": sending.SendResult,
    "RetrySettings": retry.RetrySettings,
    "Properties": field_types.Properties,
    "MessageState": field_types.StateName,
    "SettlementOutcome": settlements.SettledOutcome,
    "SentState": field_types.SentState,
    "ViewedState": field_types.ViewedState,
    "TransactionState": transactions.TransactionStateName,
    "MoveState": moves.MoveStateName,
    "ConsumerState": consumers.ConsumerStateName,
    "DeliveryMode": message_fields.DeliveryMode,
    "LockStoreState": field_types.LockStoreState,
    "ProblemCause": problems.ProblemCause,
    "ReceiveMode": messages.ReceiveMode,
    "ReceiveSource": messages.ReceiveSource,
    "RetryKind": queue_patch.RetryKind,
    "SendOutcome": sending.SendOutcome,
    "StoreEngine": capabilities.StoreEngine,
}
"""Types that are aliases in Python. Without a name, a generator would invent one at every use."""

ITEM_TYPES: Mapping[str, Any] = {
    "DelaySeconds": field_types.DelaySeconds,
    "NamePattern": keys.Pattern,
    "PropertyName": field_types.PropertyKey,
    "SequenceNumber": field_types.SequenceNumber,
}
"""Types of the items of lists. Without a name, a generator would name one after its list, such as `DelaysSecond`."""

PROBLEM_CODE = "ProblemCode"

RENAMED: Mapping[str, str] = {"Event": "MessageEventType", "Outcome": "MessageOutcome", "Right": "AccessRight"}
"""Names of the domain that do not say enough in the types of a client."""

NO_VALUE: Mapping[type[msgspec.Struct], frozenset[str]] = {
    queues.QueueSettingsBody: frozenset(
        (
            "default_delay_seconds",
            "default_ttl_seconds",
            "default_wait_seconds",
            "duplicate_detection_window_seconds",
            "forward_dead_letters_to",
            "forward_to",
            "group_in_flight",
            "max_messages",
        )
    ),
    topics.SubscriptionSettingsBody: frozenset(("filter",)),
}
"""Settings that are null in answers. A request can have them as null too, so that a client can send what it has read."""

ALWAYS_SET: Mapping[type[msgspec.Struct], frozenset[str]] = {
    queue_patch.RetryPatch: frozenset(("delay_seconds", "delays_seconds", "first_seconds", "step_seconds"))
}
"""Fields of a merge patch without a default that null could restore."""

REFERENCED = (message_fields.MessageToSend,)
"""Structs that a request names in a reference alone, because their entries are decoded one at a time."""

ANY_SCALAR = "A text, a number, true, false or null."

_MAX_INT32 = 2**31 - 1
INT64 = {"minimum": field_types.MIN_INT64, "maximum": field_types.MAX_INT64}


def reference(shape: type[msgspec.Struct]) -> Schema:
    """Return a reference to the schema of a struct."""
    return {"$ref": REF_TEMPLATE.format(name=shape.__name__)}


class Schemas:
    """The schemas of all requests and answers."""

    def __init__(self, request_types: Iterable[Any], response_types: Iterable[Any], codes: Iterable[str]) -> None:
        self._descriptions = FieldDescriptions()
        self._aliases = {name: _schema(shape) for name, shape in NAMED_TYPES.items()}
        # The SDK for Python would write each hyphen of a code as MINUS.
        names = [code.upper().replace("-", "_") for code in sorted(codes)]
        self._aliases[PROBLEM_CODE] = {"enum": sorted(codes), "x-enum-varnames": names}
        self._items = {name: _schema(shape) for name, shape in ITEM_TYPES.items()}
        received, answered = _structs(request_types), _structs(response_types)
        shapes = received | answered | _structs([*REFERENCED, *NAMED_TYPES.values()])
        self._structs = {shape.__name__: shape for shape in shapes}
        _, self._type_schemas = msgspec.json.schema_components(shapes, ref_template=REF_TEMPLATE)
        for shape in shapes:
            convert = _as_response if shape in answered - received else _as_request
            self._type_schemas[shape.__name__] = convert(shape, self._type_schemas[shape.__name__])
        self._type_schemas[problems.Problem.__name__]["properties"]["code"] = self._aliases[PROBLEM_CODE]

    def components(self) -> dict[str, Schema]:
        """Return every schema by its name."""
        named = {name: self._cleaned(schema, own_name=name) for name, schema in self._aliases.items()}
        items = {name: _without_description(self._cleaned(schema)) for name, schema in self._items.items()}
        types = {_renamed(name): self._cleaned(schema) for name, schema in self._type_schemas.items()}
        return {
            name: self._struct(self._structs[name], schema) if name in self._structs else schema
            for name, schema in sorted({**named, **items, **types}.items())
        }

    def _struct(self, shape: type[msgspec.Struct], schema: Schema) -> Schema:
        members = self._with_descriptions(shape, schema.get("properties", {}))
        return {**schema, "properties": stated_defaults(shape, members, schema.get("required", ()))}

    def field_schemas(self, shape: type[msgspec.Struct]) -> dict[str, Schema]:
        """Return the schemas of a struct's fields as those of parameters, which cannot be null."""
        _, definitions = msgspec.json.schema_components([shape], ref_template=REF_TEMPLATE)
        members: dict[str, Schema] = definitions[shape.__name__]["properties"]
        return self._with_descriptions(
            shape, {name: self._cleaned(_not_null(member)) for name, member in members.items()}
        )

    def _with_descriptions(self, shape: type[msgspec.Struct], members: Mapping[str, Schema]) -> dict[str, Schema]:
        """Return the schemas of a struct's fields, each with a description."""
        described: dict[str, Schema] = {}
        for name, member in members.items():
            of_type, undescribed = _description_of_type(member)
            described[name] = {**undescribed, "description": self._descriptions.of_field(shape, name, of_type)}
        return described

    def _cleaned(self, schema: Schema, own_name: str | None = None) -> Schema:
        """Return the schema as the document has it, with references to named schemas."""
        own = {key: value for key, value in schema.items() if key != "default"}
        for name, alias in self._aliases.items():
            if own == alias and name != own_name:
                return {"$ref": REF_TEMPLATE.format(name=name), **{key: schema[key] for key in schema.keys() - own}}
        cleaned = {key: self._cleaned_value(key, value) for key, value in schema.items() if _is_significant(key, value)}
        if "discriminator" in cleaned:
            cleaned["oneOf"] = cleaned.pop("anyOf")
        if "enum" in cleaned:
            cleaned = _as_constant(cleaned) if len(cleaned["enum"]) == 1 else {"type": "string", **cleaned}
        if number_format := _number_format(cleaned):
            cleaned["format"] = number_format
        return _with_null_as_type(cleaned)

    def _item(self, schema: Schema) -> Schema:
        """Return the schema of the items of a list: a reference, if the type has a name."""
        name = next((name for name, item in self._items.items() if item == schema), None)
        return {"$ref": REF_TEMPLATE.format(name=name)} if name else self._cleaned(schema)

    def _cleaned_value(self, key: str, value: Any) -> Any:
        match key:
            case "properties":
                return {name: self._cleaned(member) for name, member in value.items()}
            case "items":
                return self._item(value)
            case "propertyNames":
                return self._cleaned(value)
            case "$ref":
                return REF_TEMPLATE.format(name=_renamed(value.rpartition("/")[2]))
            case "additionalProperties":
                # Generators make no type, or a wrong one, of a union of scalars: one for Java turned 17 into true.
                # Of a schema without any member, one for Go makes pointers; of `true`, one for Python makes an empty class.
                return {"description": ANY_SCALAR} if "anyOf" in (value or {}) else value and self._cleaned(value)
            case "anyOf":
                return [self._cleaned(member) for member in value]
            case "description":
                return cleandoc(value)
            case "pattern":
                return str(value).replace(field_types.END_OF_TEXT, "$")
            case _:
                return value


def _number_format(schema: Schema) -> str | None:
    """Return the format of a number. Clients of JavaScript write one with 64 bits as a text, so small ones have 32."""
    match schema.get("type"):
        case "integer":
            return "int32" if schema.get("maximum", _MAX_INT32 + 1) <= _MAX_INT32 else "int64"
        case "number":
            return "double"
        case _:
            return None


def _as_constant(schema: Schema) -> Schema:
    (value,) = schema.pop("enum")
    return {"type": "string", "const": value, **schema}


def _with_null_as_type(schema: Schema) -> Schema:
    """Return the schema of a value that may be null with two types. Generators make a type of each `anyOf`."""
    match schema.get("anyOf"):
        case [{"type": str(kind), **rest}, {"type": "null"}]:
            others = {key: value for key, value in schema.items() if key != "anyOf"}
            return {"type": [kind, "null"], **rest, **others}
        case _:
            return schema


def _renamed(name: str) -> str:
    return RENAMED.get(name, name)


def _description_of_type(member: Schema) -> tuple[str | None, Schema]:
    """Return what the type of a field says of itself, and the schema of the field without that."""
    undescribed = _without_description(member)
    if "anyOf" in member:
        undescribed["anyOf"] = [_without_description(schema) for schema in member["anyOf"]]
    return meaning_of_type(member), undescribed


def _without_description(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}


def _schema(shape: Any) -> Schema:
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=REF_TEMPLATE)
    return schema


def _is_significant(key: str, value: Any) -> bool:
    """Return False for a title that repeats the name, a null default, an empty list, and the bounds of 64 bits."""
    if key in INT64:
        return value != INT64[key]
    return key != "title" and (key, value) not in (("default", None), ("required", []))


def _as_request(shape: type[msgspec.Struct], schema: Schema) -> Schema:
    """Return the schema of a struct in requests. A field is null only where that differs from leaving it out."""
    members: dict[str, Schema] = schema.get("properties", {})
    kept, always = NO_VALUE.get(shape, frozenset()), ALWAYS_SET.get(shape, frozenset())
    tag = shape.__struct_config__.tag_field
    if tag is not None:
        # A client sets a constant that has a default in its constructor.
        members = {**members, tag: {**members[tag], "default": shape.__struct_config__.tag}}
    members = {name: member if name in kept else _not_null(member) for name, member in members.items()}
    members = {name: _without_null(member) if name in always else member for name, member in members.items()}
    return {**schema, "properties": members}


def _as_response(shape: type[msgspec.Struct], schema: Schema) -> Schema:
    """Return the schema of a struct in answers, which either omit a default or always contain it, and never as null."""
    members: dict[str, Schema] = schema["properties"]
    if shape.__struct_config__.omit_defaults:
        return {**schema, "properties": {name: _not_null(member) for name, member in members.items()}}
    members = {
        name: {key: part for key, part in member.items() if key != "default"} for name, member in members.items()
    }
    return {**schema, "properties": members, "required": list(members)}


def _not_null(schema: Schema) -> Schema:
    """Return the schema without null if null is the default."""
    return schema if schema.get("default", ...) is not None else _without_null(schema)


def _without_null(schema: Schema) -> Schema:
    kept = [member for member in schema["anyOf"] if member != {"type": "null"}]
    return kept[0] if len(kept) == 1 else {**schema, "anyOf": kept}


def _structs(types: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Return every struct that these types contain."""
    return {found.cls for info in inspect.multi_type_info(types) for found in _nested_structs(info)}


def _nested_structs(info: inspect.Type) -> Iterator[inspect.StructType]:
    match info:
        case inspect.Metadata():
            yield from _nested_structs(info.type)
        case inspect.StructType():
            yield info
            for field in info.fields:
                yield from _nested_structs(field.type)
        case inspect.UnionType():
            for member in info.types:
                yield from _nested_structs(member)
        case inspect.ListType():
            yield from _nested_structs(info.item_type)
        case _:
            pass
