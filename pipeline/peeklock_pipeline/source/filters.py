"""Filters that Spark passes to a reader, as conditions that the source can check. Spark checks every row that it gets."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from peeklock_pipeline.conditions import Condition, Operator, Value, microseconds

NUMBERS = ("sequence_number", "export_batch", "priority", "delivery_count", "failure_count")
TEXTS = ("queue", "outcome", "message_id", "group_id")
TIMES = ("settled_at", "enqueued_at")

SAFE_TEXT = re.compile(r"[A-Za-z0-9._:@/+=~#-]{1,128}")
"""Texts that mean the same in a literal of every engine. Spark alone compares others."""

MAX_VALUES = 1000
"""Values of an `IN` that are put into a statement. Spark alone compares longer lists."""

ONE_DAY = 86_400_000_000
"""In microseconds, because the last day of all has no date after it."""

ORDERED: tuple[tuple[type[Filter], Operator], ...] = (
    (GreaterThan, ">"), (GreaterThanOrEqual, ">="), (LessThan, "<"), (LessThanOrEqual, "<="),
)  # fmt: skip


def conditions_of(filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """Return conditions that every row has which passes all of these filters. Other filters are left to Spark."""
    return tuple(condition for one in filters for condition in _conditions(one))


def _conditions(one: Filter) -> Iterator[Condition]:
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            yield from _equal(column, [value])
        case In((column,), values):
            yield from _equal(column, [value for value in values if value is not None])
        case _:
            for kind, operator in ORDERED:
                if isinstance(one, kind):
                    yield from _ordered(one, operator)


def _equal(column: str, values: Sequence[Any]) -> Iterator[Condition]:
    if column == "date" and len(values) == 1 and isinstance(values[0], date):
        yield from _day(">=", values[0])
        yield from _day("<=", values[0])
        return
    given = [_value(column, value) for value in values]
    known = tuple(value for value in given if value is not None)
    if known and len(known) == len(values) <= MAX_VALUES:
        yield Condition(column, "=", known)


def _ordered(one: Any, operator: Operator) -> Iterator[Condition]:
    if len(one.attribute) != 1 or one.attribute[0] in TEXTS:  # engines may order texts otherwise than Spark
        return
    (column,) = one.attribute
    if column == "date" and isinstance(one.value, date):
        yield from _day(operator, one.value)
    elif (value := _value(column, one.value)) is not None:
        yield Condition(column, operator, (value,))


def _day(operator: Operator, day: date) -> Iterator[Condition]:
    """Yield the condition on `settled_at` for a condition on `date`, which the archive does not store."""
    first, following = microseconds(day), microseconds(day) + ONE_DAY
    if operator in (">=", "<"):
        yield Condition("settled_at", operator, (first,))
    else:
        yield Condition("settled_at", ">=" if operator == ">" else "<", (following,))


def _value(column: str, value: Any) -> Value | None:
    """Return a value that a condition can have; None if Spark alone compares it."""
    if column in NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return value
    if column in TEXTS and isinstance(value, str) and SAFE_TEXT.fullmatch(value):
        return value
    if column in TIMES and isinstance(value, datetime) and value.tzinfo is not None:
        return microseconds(value)
    return None
