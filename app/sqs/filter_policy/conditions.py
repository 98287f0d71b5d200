"""The conditions of a filter policy, each translated to a part of a filter."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeAlias, cast

from app.domain.refusals import InvalidRequest
from app.domain.suggestions import did_you_mean
from app.sqs.xml_text import quoted

Value: TypeAlias = str | int | float | bool | None
"""A value of JSON that a condition compares."""

_MAX_NUMBER = 10**9
"""The largest number of a policy, as in SNS."""
_LOWER_BOUNDS = (">", ">=")
_UPPER_BOUNDS = ("<", "<=")


class Field(NamedTuple):
    """A field of a message in a filter: how to read its value, and how to test that it exists, empty if that is not possible.

    `is_array` is whether its value may be an array, of which one entry must be equal.
    """

    value: str
    exists: str
    is_array: bool


Alternatives: TypeAlias = list[str]
"""Parts of a filter, of which a message matches at least one. Each binds at least as strongly as `&&`."""

_Translation: TypeAlias = Callable[[str, Field, object], str]
"""Return the condition on a field as a filter, from the name of the field and the operand of the condition."""


def alternatives_of(name: str, field: Field, values: object) -> Alternatives:
    """Return what the list of a field accepts. Values without an operator are compared by one part.

    Refuses with `InvalidRequest` what is no list of values and conditions.
    """
    if not isinstance(values, list) or not values:
        raise InvalidRequest(f"In a FilterPolicy, {quoted(name)} has a list of at least one value or condition.")
    plain: list[Value] = []
    conditions: Alternatives = []
    for value in cast("list[object]", values):
        if isinstance(value, dict):
            conditions.append(_condition(name, field, cast("Mapping[str, object]", value)))
        else:
            plain.append(_scalar(name, value))
    if plain:
        conditions.insert(0, _one_of(field, plain))
    if field.is_array:
        conditions += [f"{_literal(value)} in {field.value}" for value in plain]
    return conditions


def text_literal(text: str) -> str:
    """Return a text as a filter writes it."""
    return json.dumps(text, ensure_ascii=False)


def _condition(name: str, field: Field, condition: Mapping[str, object]) -> str:
    if len(condition) != 1:
        raise InvalidRequest(f"In a FilterPolicy, a condition of {quoted(name)} is an object with one operator.")
    ((operator, operand),) = condition.items()
    translate = _OPERATORS.get(operator)
    if translate is None:
        raise InvalidRequest(
            f"In a FilterPolicy, this server does not support the operator {quoted(operator)} of {quoted(name)}. It supports "
            f"{', '.join(_OPERATORS)} and $or.{did_you_mean(operator, _OPERATORS)}"
        )
    return translate(name, field, operand)


def _scalar(name: str, value: object) -> Value:
    if isinstance(value, list):
        raise InvalidRequest(f"In a FilterPolicy, the list of {quoted(name)} has no lists.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(name, value)
    return cast("Value", value)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MAX_NUMBER <= value <= _MAX_NUMBER:
        raise InvalidRequest(
            f"In a FilterPolicy, a number of {quoted(name)} is from {-_MAX_NUMBER:,} to {_MAX_NUMBER:,}, as in SNS."
        )
    return value


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return json.dumps(value)


def _one_of(field: Field, values: Sequence[Value]) -> str:
    if len(values) == 1:
        return f"{field.value} == {_literal(values[0])}"
    return f"{field.value} in [{', '.join(map(_literal, values))}]"


def _anything_but(name: str, field: Field, operand: object) -> str:
    if isinstance(operand, dict):
        condition = cast("Mapping[str, object]", operand)
        if len(condition) != 1 or not condition.keys() <= _AFFIXES.keys():
            raise InvalidRequest(
                f"In a FilterPolicy, anything-but of {quoted(name)} takes values, or one of {' and '.join(_AFFIXES)}."
            )
        ((operator, affix),) = condition.items()
        return f"!{_AFFIXES[operator](name, field, affix)}"
    values = cast("list[object]", operand) if isinstance(operand, list) else [operand]
    kinds = {"text" if isinstance(value, str) else "number" for value in values}
    if len(kinds) != 1:
        raise InvalidRequest(f"In a FilterPolicy, anything-but of {quoted(name)} takes either texts or numbers.")
    wanted = [value if isinstance(value, str) else _number(name, value) for value in values]
    return f"!({_one_of(field, wanted)})" if len(wanted) > 1 else f"{field.value} != {_literal(wanted[0])}"


def _affix(operator: str, function: str) -> _Translation:
    def translate(name: str, field: Field, operand: object) -> str:
        if not isinstance(operand, str) or not operand:
            raise InvalidRequest(f"In a FilterPolicy, {operator} of {quoted(name)} takes a text that is not empty.")
        return f"{field.value}.{function}({text_literal(operand)})"

    return translate


def _numeric(name: str, field: Field, operand: object) -> str:
    """Translate `["=", 5]`, `[">", 5]` or `[">", 5, "<=", 10]`."""
    parts = cast("list[object]", operand) if isinstance(operand, list) else []
    operators = parts[::2]
    numbers = [_number(name, one) for one in parts[1::2]]
    if len(operators) != len(numbers) or not (_is_comparison(operators) or _is_range(operators, numbers)):
        raise InvalidRequest(
            f'In a FilterPolicy, numeric of {quoted(name)} takes one comparison, as in [">", 5], or a range, as in '
            '[">", 5, "<=", 10].'
        )
    compared = zip(operators, numbers, strict=True)
    return " && ".join(f"{field.value} {'==' if one == '=' else one} {_literal(number)}" for one, number in compared)


def _is_comparison(operators: Sequence[object]) -> bool:
    return len(operators) == 1 and operators[0] in (*_LOWER_BOUNDS, *_UPPER_BOUNDS, "=")


def _is_range(operators: Sequence[object], numbers: Sequence[float]) -> bool:
    match operators:
        case [lower, upper]:
            return lower in _LOWER_BOUNDS and upper in _UPPER_BOUNDS and numbers[0] < numbers[1]
        case _:
            return False


def _exists(name: str, field: Field, operand: object) -> str:
    if not isinstance(operand, bool):
        raise InvalidRequest(f"In a FilterPolicy, exists of {quoted(name)} takes true or false.")
    if not field.exists:
        raise InvalidRequest(
            f"In a FilterPolicy, this server supports exists only for names of letters, digits and underscores within "
            f"objects, and not for {quoted(name)}."
        )
    return field.exists if operand else f"!({field.exists})"


_AFFIXES: Mapping[str, _Translation] = {
    "prefix": _affix("prefix", "startsWith"),
    "suffix": _affix("suffix", "endsWith"),
}
_OPERATORS: Mapping[str, _Translation] = {
    **_AFFIXES,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
}
"""The operators, and how each is translated."""
