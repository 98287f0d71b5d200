"""Says when an alert rule fires: evaluates the part of PromQL that rules of the pipeline use.

The metrics of runs stay at a Pushgateway or in a file. So a series keeps each value until the next one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import promql_parser as promql

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

INTERVAL = 60
"""The seconds between two evaluations of a rule."""

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {"-": operator.sub, "*": operator.mul}
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">": operator.gt, "==": operator.eq}


@dataclass(frozen=True)
class Series:
    """A series: its name and labels, and its values with the second since which each is valid."""

    name: str
    labels: Mapping[str, str]
    values: Mapping[int, float]

    def at(self, moment: float) -> list[float]:
        """Return the value at a moment; none before the first one."""
        return self.between(moment, moment)

    def between(self, begin: float, end: float) -> list[float]:
        """Return the values that are valid at some time of a period."""
        since = sorted(self.values)
        until = [*since[1:], float("inf")]
        return [self.values[first] for first, last in zip(since, until, strict=True) if first <= end and last > begin]


def firing(rule: Mapping[str, Any], series: Sequence[Series], now: int) -> list[dict[str, str]]:
    """Return the labels of each alert of a rule that fires now: the rule held at each evaluation of its `for`."""
    expression = promql.parse(rule["expr"])
    held = promql.parse_duration(rule["for"]) if "for" in rule else timedelta()
    begin = now - int(held.total_seconds())
    found = [evaluate(expression, series, moment) for moment in (*range(begin, now, INTERVAL), now)]
    return [dict(labels) for labels in found[-1] if all(labels in earlier for earlier in found)]


def evaluate(expression: Any, series: Sequence[Series], now: float) -> Any:
    """Return the value of an expression at a moment: a number, or a number for each set of labels."""
    match expression:
        case promql.NumberLiteral():
            return expression.val
        case promql.ParenExpr():
            return evaluate(expression.expr, series, now)
        case promql.VectorSelector():
            return {
                frozenset(one.labels.items()): one.at(now)[0] for one in selected(expression, series) if one.at(now)
            }
        case promql.AggregateExpr() if str(expression.op) == "max":
            return highest(evaluate(expression.expr, series, now), expression.modifier.labels)
        case promql.Call() if expression.func.name == "time":
            return now
        case promql.Call() if expression.func.name == "max_over_time":
            (ranged,) = expression.args
            end = now - (ranged.vector_selector.offset or timedelta()).total_seconds()
            found = {
                frozenset(one.labels.items()): one.between(end - ranged.range.total_seconds(), end)
                for one in selected(ranged.vector_selector, series)
            }
            return {labels: max(values) for labels, values in found.items() if values}
        case promql.BinaryExpr():
            left, right = (evaluate(part, series, now) for part in (expression.lhs, expression.rhs))
            return combined(str(expression.op), left, right)
    raise ValueError(f"this part of PromQL is unknown here: {expression}")


def selected(selector: Any, series: Sequence[Series]) -> list[Series]:
    """Return the series that a selector names."""
    patterns = {
        matcher.name: matcher.value if matcher.op == promql.MatchOp.Re else re.escape(matcher.value)
        for matcher in selector.matchers.matchers
        if matcher.op in (promql.MatchOp.Equal, promql.MatchOp.Re)
    }
    assert len(patterns) == len(selector.matchers.matchers)
    return [
        one
        for one in series
        if one.name == selector.name
        and all(re.fullmatch(pattern, one.labels.get(name, "")) for name, pattern in patterns.items())
    ]


def highest(vector: Vector, by: Sequence[str]) -> Vector:
    """Return the highest value for each set of these labels."""
    found: Vector = {}
    for labels, value in vector.items():
        group = frozenset((name, text) for name, text in labels if name in by)
        found[group] = max(value, found.get(group, value))
    return found


def combined(sign: str, left: Any, right: Any) -> Vector:
    """Return the result of an operator. One side may be a number; others match by all their labels."""
    if sign == "or":
        return {**right, **left}
    every = left if isinstance(left, dict) else right
    lefts, rights = (side if isinstance(side, dict) else dict.fromkeys(every, side) for side in (left, right))
    pairs = {labels: (lefts[labels], rights[labels]) for labels in lefts if labels in rights}
    if sign in ARITHMETIC:
        return {labels: ARITHMETIC[sign](*pair) for labels, pair in pairs.items()}
    return {labels: pair[0] for labels, pair in pairs.items() if COMPARISONS[sign](*pair)}
