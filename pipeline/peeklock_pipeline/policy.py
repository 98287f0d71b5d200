"""Parses a queue's policy: `lock=30s,limit=10,retry=exponential:1s:2:60s`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from peeklock_pipeline.refusals import BadPolicy

SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|h|d)")

MIN_LOCK_DURATION, MAX_LOCK_DURATION = 1.0, 12 * 3600.0
MAX_DELAY = 7 * 86_400.0
MAX_DELIVERIES = 1000
"""A queue may allow more. Modelling more attempts for each message adds no information."""


class RetryKind(StrEnum):
    """How the delay of a message grows with its failures."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    LISTED = "listed"


RETRY_FORMS: Mapping[RetryKind, tuple[int, int, str]] = {
    RetryKind.NONE: (0, 0, "none"),
    RetryKind.FIXED: (1, 1, "fixed:10s"),
    RetryKind.LINEAR: (2, 3, "linear:1s:5s:60s (first, step, longest)"),
    RetryKind.EXPONENTIAL: (2, 4, "exponential:1s:2:60s:0.5 (first, factor, longest, jitter)"),
    RetryKind.LISTED: (1, 100, "listed:1s:10s:60s"),
}
"""The smallest and the largest number of values of each kind, and an example."""

EXAMPLE = "lock=30s,limit=10,retry=exponential:1s:2:60s"


@dataclass(frozen=True, slots=True)
class Retry:
    """The delay of a message after failure number n, in seconds.

    `first` + `step` * (n - 1), or `first` * `factor` ** (n - 1), at most `longest`; or the n-th of `listed`, and then
    its last. `jitter` is the largest share that a random draw subtracts.
    """

    first: float = 0.0
    step: float = 0.0
    factor: float = 1.0
    longest: float = MAX_DELAY
    jitter: float = 0.0
    listed: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The lock duration, the limit of failures before dead-lettering, and the retry delay.

    The defaults are those of a new queue; `lock` is in seconds.
    """

    lock: float = 30.0
    limit: int = 10
    retry: Retry = Retry()


def read_policy(text: str, default: Policy) -> Policy:
    """Return the policy in a text; missing parts are as in `default`. Refuses with `BadPolicy`."""
    policy = default
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        match name:
            case "lock":
                policy = replace(
                    policy, lock=_check_range(part, _duration(value), MIN_LOCK_DURATION, MAX_LOCK_DURATION)
                )
            case "limit":
                policy = replace(policy, limit=int(_check_range(part, _integer(value), 1, MAX_DELIVERIES)))
            case "retry":
                policy = replace(policy, retry=_retry(value))
            case _:
                raise BadPolicy(f"A policy has lock, limit and retry, as in {EXAMPLE}; {part!r} is none of them.")
    return policy


def _retry(text: str) -> Retry:
    name, *values = text.split(":")
    if name not in RETRY_FORMS:
        examples = ", ".join(example for _, _, example in RETRY_FORMS.values())
        raise BadPolicy(f"The retry {text!r} cannot be understood; write {examples}.")
    kind = RetryKind(name)
    minimum, maximum, example = RETRY_FORMS[kind]
    if not minimum <= len(values) <= maximum:
        raise BadPolicy(f"The retry {text!r} cannot be understood; write {example}.")
    match kind:
        case RetryKind.NONE:
            return Retry()
        case RetryKind.FIXED | RetryKind.LINEAR:
            first, step, longest = (
                [*map(_delay, values), 0.0, MAX_DELAY][:3] if len(values) < 3 else map(_delay, values)
            )
            return Retry(first, step, longest=longest)
        case RetryKind.EXPONENTIAL:
            longest = _delay(values[2]) if len(values) > 2 else MAX_DELAY
            jitter = _check_range(text, _number(values[3]), 0, 1) if len(values) > 3 else 0.0
            return Retry(_delay(values[0]), 0.0, _check_range(text, _number(values[1]), 1, 100), longest, jitter)
        case RetryKind.LISTED:
            return Retry(listed=tuple(_delay(value) for value in values))
        case _:
            assert_never(kind)


def _duration(text: str) -> float:
    written = DURATION_PATTERN.fullmatch(text)
    if written is None:
        raise BadPolicy(f"{text!r} is no duration; write 500ms, 30s, 5min, 2h or 1d.")
    return float(written[1]) * SECONDS[written[2]]


def _delay(text: str) -> float:
    return _check_range(text, _duration(text), 0, MAX_DELAY)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadPolicy(f"{text!r} is no number.") from None


def _integer(text: str) -> float:
    if not text.isascii() or not text.isdigit():
        raise BadPolicy(f"{text!r} is no whole number.")
    return float(text)


def _check_range(text_given: str, value: float, minimum: float, maximum: float) -> float:
    if not minimum <= value <= maximum:
        raise BadPolicy(
            f"{text_given!r} is out of bounds: {minimum:g} to {maximum:g}{' (seconds)' if maximum > 1000 else ''}."
        )
    return value
