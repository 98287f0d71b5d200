"""Makes the options of a command from the fields of its request, one for each field."""

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import typer

from app.cli.option_groups import option

SHORT_NAMES = {
    "delay_seconds": "--delay",
    "group_id": "--group",
    "transaction_id": "--transaction",
    "wait_seconds": "--wait",
}
"""Older names of options. Since then, options have the names of fields."""

Kind: TypeAlias = Literal["bool", "int", "float", "text", "texts", "numbers", "json"]

TYPES: Mapping[Kind, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "text": str,
    "texts": list[str],
    "numbers": list[float],
    "json": msgspec.Raw,
}
"""The type of an option's values, for each kind of a field."""


class FieldOption(NamedTuple):
    """An option for a field, or for a field of a field. `request_options.py` lists them for each request."""

    path: tuple[str, ...]
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the option's parameter."""
        return "_".join(self.path)

    def parameter(self) -> Parameter:
        """Return the option, as a parameter with typer's annotation."""
        flag = "--" + self.name.replace("_", "-")
        negated = f"{flag}/--no-{flag[2:]}" if self.kind == "bool" else flag
        names = [negated, *([SHORT_NAMES[self.name]] if self.name in SHORT_NAMES else [])]
        settings: dict[str, Any] = {"help": self.help}
        if self.choices:
            settings |= {"parser": _choice(self.choices), "metavar": f"[{'|'.join(self.choices)}]"}
        elif self.kind == "json":
            settings |= {"parser": _json_value, "metavar": "JSON"}
        return option(self.name, Annotated[TYPES[self.kind] | None, typer.Option(*names, **settings)])


class FieldGroup:
    """Options for the fields of a request."""

    def __init__(self, options: Sequence[FieldOption], without: Sequence[str] = ()) -> None:
        self._options = [found for found in options if found.path[0] not in without]
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

    def __init__(self, options: Sequence[FieldOption], *, resets: bool = False) -> None:
        super().__init__(options)
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


def assigned(assignments: list[str] | None) -> dict[str, str]:
    """Return the values of NAME=VALUE by name. Raises `typer.BadParameter`."""
    values: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise typer.BadParameter(f"{assignment} is not NAME=VALUE")
        values[name] = value
    return values


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
