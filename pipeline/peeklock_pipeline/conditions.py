"""Conditions on rows of the archive that a database or a reader of Parquet files can check, so that fewer rows travel."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any, Literal, assert_never

import pyarrow as pa
import pyarrow.dataset as ds

from peeklock_pipeline.table_specs import ARCHIVE

Operator = Literal["=", "<", "<=", ">", ">="]
Value = int | str

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column of the archive with a value; for `=`, with several values, of which one has to be equal.

    Times are microseconds since 1970. Texts need no escape in SQL, as the code that makes a condition ensures.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]

    def sql(self, name_of: Callable[[str], str] = str) -> str:
        """Return the condition in the SQL of every engine. `name_of` qualifies the column."""
        values = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in self.values)
        comparison = f"IN ({values})" if self.operator == "=" else f"{self.operator} {values}"
        return f"{name_of(self.column)} {comparison}"

    def expression(self) -> ds.Expression:
        """Return the condition for a reader of Parquet files."""
        field: Any = ds.field(self.column)
        kind = ARCHIVE.schema.field(self.column).type
        match self.operator:
            case "=":
                return field.isin(pa.array(self.values, kind))
            case "<":
                return field < pa.scalar(self.values[0], kind)
            case "<=":
                return field <= pa.scalar(self.values[0], kind)
            case ">":
                return field > pa.scalar(self.values[0], kind)
            case ">=":
                return field >= pa.scalar(self.values[0], kind)
            case _:
                assert_never(self.operator)

    def may_hold(self, low: Any, high: Any) -> bool:
        """Return whether the condition can hold for a value from `low` to `high`, inclusive."""
        match self.operator:
            case "=":
                return any(low <= value <= high for value in self.values)
            case "<":
                return low < self.values[0]
            case "<=":
                return low <= self.values[0]
            case ">":
                return high > self.values[0]
            case ">=":
                return high >= self.values[0]
            case _:
                assert_never(self.operator)


def batches_between(first: int, last: int) -> tuple[Condition, Condition]:
    """Return the conditions for rows of these batches, inclusive."""
    return Condition("export_batch", ">=", (first,)), Condition("export_batch", "<=", (last,))


def all_of(conditions: tuple[Condition, ...]) -> ds.Expression:
    """Return the expression for rows that meet all of these conditions, at least one."""
    return reduce(and_, [condition.expression() for condition in conditions])


def microseconds(moment: datetime | date) -> int:
    """Return a time, or the start of a day, in UTC, as microseconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return (at - EPOCH) // timedelta(microseconds=1)
