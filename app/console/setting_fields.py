"""The fields of forms with settings: each with a label, and with what the OpenAPI document says about it and its limits.

Durations and sizes are written as people write them. A field without a text has the default of the API.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from app.console.durations import NoDuration, duration_text, parse_duration
from app.console.forms import FormFaults, json_field
from app.console.sizes import NoSize, exact_size_text, parse_size, size_text
from app.domain.instant import from_seconds, to_seconds
from app.domain.refusals import FieldError, InvalidRequest, Refusal, invalid_at
from app.wire.field_descriptions import FieldDescriptions
from app.wire.type_lookup import members, types_at

FieldKind: TypeAlias = Literal["text", "number", "duration", "size", "switch", "choice", "lines", "json"]

ON, OFF = "true", ""
"""What a switch contains. A browser leaves out one that is off."""

LARGEST_SHOWN = 1 << 40
"""A larger bound is that of an integer, and says nothing about the setting."""

WORDS_OF_FORMS = (
    ("Null: ", "Empty: "),
    ("null: ", "empty: "),
    (", in seconds", ""),
    ("`ttl_seconds`", "a time to live"),
    ("`wait_seconds`", "a time to wait"),
    ("`delay_seconds` or `available_at`", "a delay or a due time"),
    ("the delivery `synchronous`", "synchronous delivery"),
    ("`active`, or which of sends and receives are refused. ", ""),
    ("`on_request`: a message", "On request: a message"),
)
"""What the document says of JSON, and a form in other words: an empty field, durations that have units, and choices."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """How a form reads and writes numbers of a kind, how help texts write their limits, and the sentence for one beyond them."""

    read: Callable[[str], float]
    write: Callable[[float], str]
    write_limit: Callable[[float], str]
    out_of_bounds: str


def _duration_text(seconds: float) -> str:
    return duration_text(from_seconds(seconds))


QUANTITIES: Mapping[str, Quantity] = {
    "duration": Quantity(
        lambda text: to_seconds(parse_duration(text)),
        _duration_text,
        _duration_text,
        "This is too long or too short.",
    ),
    "size": Quantity(
        parse_size,
        lambda size: size_text(int(size)),
        lambda size: exact_size_text(int(size)),
        "This is too large or too small.",
    ),
}
"""The kinds of fields whose numbers have units."""


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field: its name in the form and in JSON, its label, and sentences about its meaning and its limits."""

    name: str
    json_name: str
    label: str
    kind: FieldKind
    meaning: str
    limits: str = ""
    choices: Sequence[tuple[str, str]] = ()


@cache
def meanings(shape: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return what the OpenAPI document says about each field of a struct, in the words of a form."""
    return {name: _in_form(text) for name, text in _descriptions().of_struct(shape).items()}


def setting_field(
    shape: type[msgspec.Struct],
    name: str,
    label: str,
    kind: FieldKind = "text",
    choices: Sequence[tuple[str, str]] = (),
    json_name: str | None = None,
) -> SettingField:
    """Return the field of a form for a field of a struct."""
    json_name = json_name or (f"{name}_seconds" if kind == "duration" else name)
    return SettingField(
        name, json_name, label, kind, meanings(shape)[json_name], _limits(shape, json_name, kind), choices
    )


def read_settings(
    shape: type[msgspec.Struct], fields: Sequence[SettingField], typed: Mapping[str, str], faults: FormFaults
) -> dict[str, object]:
    """Return the settings in a form by their names in JSON, and collect the faults of those that are wrong."""
    found: dict[str, object] = {}
    for field in fields:
        with faults.collected():
            found[field.json_name] = _value(shape, field, typed.get(field.name, ""))
    return found


def setting_texts(fields: Iterable[SettingField], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the fields of a form contain for these settings, which have their names in JSON."""
    return {field.name: _text(field, settings.get(field.json_name)) for field in fields}


def seconds_in(shape: Any, path: str, name: str, text: str) -> float:
    """Return the seconds of a duration that was typed into the field `name`, within the bounds of the shape at a path.

    Refuses with `InvalidRequest`.
    """
    return _quantity_in(shape, path, name, text, "duration")


def renamed(refusal: Refusal, names: Mapping[str, str]) -> Refusal:
    """Return a refusal of JSON as that of a form: `names` has the names of fields by their JSON pointers."""
    if not refusal.field_errors:
        return refusal
    return InvalidRequest(
        field_errors=[FieldError(_form_pointer(one.pointer, names), one.detail) for one in refusal.field_errors]
    )


def names_in_form(fields: Iterable[SettingField]) -> dict[str, str]:
    """Return the names of fields by their JSON pointers."""
    return {f"/{field.json_name}": field.name for field in fields}


@cache
def _descriptions() -> FieldDescriptions:
    return FieldDescriptions()


def _in_form(text: str) -> str:
    for of_json, of_form in WORDS_OF_FORMS:
        text = text.replace(of_json, of_form)
    return text


def _value(shape: type[msgspec.Struct], field: SettingField, text: str) -> object:
    if field.kind == "switch":
        return _is_on(field, text)
    text = text.strip()
    if field.kind == "json" and text:
        return msgspec.json.decode(json_field(field.name, text) or b"")
    if field.kind not in QUANTITIES or not text:
        return text
    return _quantity_in(shape, f".{field.json_name}", field.name, text, field.kind)


def _quantity_in(shape: Any, path: str, name: str, text: str, kind: FieldKind) -> float:
    quantity = QUANTITIES[kind]
    try:
        number = quantity.read(text)
    except (NoDuration, NoSize) as fault:
        raise invalid_at(f"/{name}", str(fault)) from None
    lowest, highest = _bounds(shape, path)
    if (lowest is not None and number < lowest) or (highest is not None and number > highest):
        raise invalid_at(f"/{name}", f"{quantity.out_of_bounds} {_range(lowest, highest, kind)}")
    return number


def _is_on(field: SettingField, text: str) -> bool:
    if text not in (ON, OFF):
        raise invalid_at(f"/{field.name}", f"This field is `{ON}`, or left out.")
    return text == ON


def _text(field: SettingField, value: Any) -> str:
    if value is None:
        return ""
    if field.kind == "switch":
        return ON if value else OFF
    if field.kind == "json":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() if value else ""
    return QUANTITIES[field.kind].write(value) if field.kind in QUANTITIES else str(value)


def _form_pointer(pointer: str, names: Mapping[str, str]) -> str:
    """Return the pointer to the field of the form that has the value at this pointer, or a part of it."""
    pointer = pointer.removeprefix("#")
    within = [known for known in names if pointer == known or pointer.startswith(f"{known}/")]
    return f"/{names[max(within, key=len)]}" if within else pointer


def _bounds(shape: Any, path: str) -> tuple[float | None, float | None]:
    """Return the least and the greatest number at a path of a shape."""
    for info in members(types_at(path, shape)):
        if isinstance(info, inspect.IntType | inspect.FloatType):
            return info.ge, info.le
    return None, None


def _limits(shape: type[msgspec.Struct], json_name: str, kind: FieldKind) -> str:
    if kind != "number" and kind not in QUANTITIES:
        return ""
    lowest, highest = _bounds(shape, f".{json_name}")
    default = next(field.default for field in _struct_fields(shape) if field.encode_name == json_name)
    sentences = [_range(lowest, highest, kind)]
    if isinstance(default, int | float):
        sentences.append(f"Default: {_amount(default, kind)}.")
    return " ".join(filter(None, sentences))


def _struct_fields(shape: type[msgspec.Struct]) -> Sequence[inspect.Field]:
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _range(lowest: float | None, highest: float | None, kind: FieldKind) -> str:
    if highest is not None and highest > LARGEST_SHOWN:
        highest = None
    if lowest is not None and highest is not None:
        return f"From {_amount(lowest, kind)} to {_amount(highest, kind)}."
    return "" if lowest is None else f"At least {_amount(lowest, kind)}."


def _amount(number: float, kind: FieldKind) -> str:
    return QUANTITIES[kind].write_limit(number) if kind in QUANTITIES else f"{number:,.0f}"
