"""The rules of filter policies, as the guide of SNS states them, without filters of the broker."""

from collections.abc import Mapping
from typing import Any

MISSING = object()


def policy_matches(policy: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    """Return whether a message with these attributes, or a body with these members, matches a policy."""
    return all(_matches_member(name, rule, members) for name, rule in policy.items())


def _matches_member(name: str, rule: Any, members: Mapping[str, Any]) -> bool:
    if name == "$or":
        return any(policy_matches(one, members) for one in rule)
    found = members.get(name, MISSING)
    if isinstance(rule, dict):
        return policy_matches(rule, found if isinstance(found, dict) else {})
    return any(_matches(one, found) for one in rule)


def _matches(rule: Any, found: Any) -> bool:
    if not isinstance(rule, dict):
        return any(_equal(rule, one) for one in (found if isinstance(found, list) else [found]))
    ((operator, operand),) = rule.items()
    match operator:
        case "exists":
            return (found is not MISSING) is operand
        case "prefix":
            return isinstance(found, str) and found.startswith(operand)
        case "suffix":
            return isinstance(found, str) and found.endswith(operand)
        case "numeric":
            return _is_number(found) and all(
                _compare(found, one, number) for one, number in zip(operand[::2], operand[1::2], strict=True)
            )
        case _:
            return _is_anything_but(operand, found)


def _is_anything_but(operand: Any, found: Any) -> bool:
    if found is MISSING:
        return False
    if isinstance(operand, dict):
        # A value that is no text is not compared with a part of a text.
        return isinstance(found, str) and not _matches(operand, found)
    return not any(_equal(one, found) for one in (operand if isinstance(operand, list) else [operand]))


def _compare(found: float, operator: str, number: float) -> bool:
    return {
        "=": found == number,
        "<": found < number,
        "<=": found <= number,
        ">": found > number,
        ">=": found >= number,
    }[operator]


def _equal(wanted: Any, found: Any) -> bool:
    """Compare as JSON: 1 is 1.0, but not true."""
    return isinstance(wanted, bool) is isinstance(found, bool) and type(wanted) is not object and wanted == found


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)
