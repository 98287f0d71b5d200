"""Makes the options of a command from the fields of its request, one for each field."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, cast

import msgspec
import typer
from msgspec import inspect

from app.api.openapi.field_descriptions import FieldDescriptions
from app.cli.option_groups import option
from app.wire.type_lookup import choices, members

DESCRIPTIONS = FieldDescriptions()

SHORT_NAMES = {
    "delay_seconds": "--delay",
    "group_id": "--group",
    "transaction_id": "--transaction",
    "wait_seconds": "--wait",
}
"""Older names of options. Since then, options have the names of fields."""


@dataclass(frozen=True, slots=True)
class FieldOption:
    """An option for a field, or for a field of a field."""

    path: tuple[str, ...]
    types: Sequence[inspect.Type]
    help: str

    @property
    def name(self) -> str:
        """The name of the option's parameter."""
        return "_".join(self.path)

    def parameter(self) -> Parameter:
        """Return the option, as a parameter with typer's annotation."""
        flag = "--" + self.name.replace("_", "-")
        possible, kind = choices(self.types), self._python_type()
        negated = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
        names = [negated, *([SHORT_NAMES[self.name]] if self.name in SHORT_NAMES else [])]
        settings: dict[str, Any] = {"help": self.help}
        if possible:
            settings |= {"parser": _choice(possible), "metavar": f"[{'|'.join(possible)}]"}
        elif kind is msgspec.Raw:
            settings |= {"parser": _json_value, "metavar": "JSON"}
        return option(self.name, Annotated[kind | None, typer.Option(*names, **settings)])

    def _python_type(self) -> Any:
        """Return the type of the option's values."""
        for member in members(self.types):
            match member:
                case inspect.BoolType():
                    return bool
                case inspect.IntType():
                    return int
                case inspect.FloatType():
                    return float
                case inspect.ListType():
                    return list[float] if _is_number(member.item_type) else list[str]
                case inspect.StrType() | inspect.DateTimeType() | inspect.EnumType() | inspect.LiteralType():
                    return str
                case _:
                    continue
        return msgspec.Raw


class FieldGroup:
    """Options for the fields of a struct, as the members of a request."""

    def __init__(self, shape: type[msgspec.Struct], without: Sequence[str] = ()) -> None:
        self._options = [found for found in field_options(shape) if found.path[0] not in without]
        self.parameters: Sequence[Parameter] = [found.parameter() for found in self._options]

    def collect(self, values: dict[str, Any]) -> dict[str, Any]:
        """See `OptionGroup`. Fields without a value are left out."""
        body: dict[str, Any] = {}
        for found in self._options:
            value = values[found.name]
            if value is not None and value != []:
                _put(body, found.path, value)
        return body


class SettingsGroup(FieldGroup):
    """Options for settings, also by `--set`."""

    def __init__(self, shape: type[msgspec.Struct], *, resets: bool = False) -> None:
        super().__init__(shape)
        self._of_fields = self.parameters
        self.parameters = [*self._of_fields, SET, *([RESET] if resets else [])]

    def collect(self, values: dict[str, Any]) -> dict[str, Any]:
        """See `OptionGroup`. A setting to reset is null, and options come before `--set`."""
        resets = dict.fromkeys(name.replace("-", "_") for name in values.get("reset") or ())
        return {**resets, **_parsed(values["assignments"]), **super().collect(values)}


SET = option(
    "assignments",
    Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated. VALUE is JSON or plain text."),
    ],
)
RESET = option(
    "reset",
    Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="NAME", help="Reset a setting to its default; may be repeated."),
    ],
)


def field_options(shape: type[msgspec.Struct]) -> list[FieldOption]:
    """Return an option for each field of a struct. A field with fields has an option for each of these."""
    found: list[FieldOption] = []
    for field in cast("inspect.StructType", inspect.type_info(shape)).fields:
        structs = [info for info in members([field.type]) if isinstance(info, inspect.StructType)]
        if structs:
            found += _inner_options(field.encode_name, structs)
        else:
            help_text = _help(shape, field)
            found.append(FieldOption((field.encode_name,), [field.type], help_text))
    return found


def assigned(assignments: list[str] | None) -> dict[str, str]:
    """Return the values of NAME=VALUE by name. Raises `typer.BadParameter`."""
    values: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise typer.BadParameter(f"{assignment} is not NAME=VALUE")
        values[name] = value
    return values


def _inner_options(outer: str, structs: Sequence[inspect.StructType]) -> list[FieldOption]:
    """Return options for the fields of alternatives that a tag tells apart, and for the tag."""
    found: dict[str, FieldOption] = {}
    tags = [struct for struct in structs if struct.tag_field]
    if tags:
        tag = cast("str", tags[0].tag_field)
        kinds = inspect.LiteralType(tuple(str(struct.tag) for struct in tags))
        found[tag] = FieldOption((outer, tag), [kinds], f"The {tag} of {outer}.")
    for struct in structs:
        for field in struct.fields:
            help_text = _help(struct.cls, field)
            found.setdefault(field.encode_name, FieldOption((outer, field.encode_name), [field.type], help_text))
    return list(found.values())


def _help(shape: type[Any], field: inspect.Field) -> str:
    of_type = _description(field.type)
    text = DESCRIPTIONS.of_field(shape, field.encode_name, of_type)
    return " ".join(text.replace("`", "").split())


def _description(info: inspect.Type) -> str | None:
    """Return what a type says about its values."""
    match info:
        case inspect.Metadata():
            schema = cast("dict[str, Any]", info.extra_json_schema or {})  # pyright: ignore[reportUnknownMemberType]
            return schema.get("description") or _description(info.type)
        case inspect.UnionType():
            return next(filter(None, map(_description, info.types)), None)
        case _:
            return None


def _is_number(info: inspect.Type) -> bool:
    return any(isinstance(member, inspect.FloatType | inspect.IntType) for member in members([info]))


def _choice(possible: Sequence[str]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in possible:
            raise typer.BadParameter(f"{text} is not one of {', '.join(possible)}.")
        return text

    return choose


def _json_value(text: str) -> msgspec.Raw:
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"{text} is not JSON: {error}") from None


def _put(body: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    inner = body
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value


def _parsed(assignments: list[str] | None) -> dict[str, Any]:
    return {name: _json_or_text(value) for name, value in assigned(assignments).items()}


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
