"""The policy of retry delays as the fields of a form, and a drawing of the delays that it means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from app.console.durations import duration_text, rounded_duration_text
from app.console.forms import FormFaults
from app.console.setting_fields import meanings, seconds_in
from app.domain.instant import Duration
from app.domain.refusals import invalid_at
from app.domain.retry import (
    MAX_DELAY,
    MAX_LISTED_DELAYS,
    ExponentialDelay,
    FixedDelay,
    LinearDelay,
    ListedDelays,
    NoDelay,
    RetryPolicy,
    retry_delay,
)
from app.wire.retry import ExponentialRetryDelay, FixedRetryDelay, LinearRetryDelay, ListRetryDelay

KIND = "retry"
LABEL = "How long does a message wait after a failed delivery?"
KINDS: Sequence[tuple[str, str]] = (
    ("none", "It is delivered again at once."),
    ("fixed", "It waits for the same time after each failure."),
    ("linear", "It waits longer by the same step after each failure."),
    ("exponential", "It waits longer by a factor after each failure."),
    ("list", "It waits as long as a list says."),
)
"""The kinds of policies, with a sentence about each."""


@dataclass(frozen=True, slots=True)
class RetryField:
    """A field of the kinds that it belongs to. `json_name` is its name in the policy."""

    name: str
    json_name: str
    kinds: Sequence[str]
    label: str
    meaning: str
    placeholder: str
    is_duration: bool = True
    is_needed: bool = False


def _meaning(shape: type[msgspec.Struct], name: str) -> str:
    return meanings(shape)[name]


FIELDS: Sequence[RetryField] = (
    RetryField(
        "retry_delay", "delay_seconds", ("fixed",), "How long does the message wait?",
        _meaning(FixedRetryDelay, "delay_seconds"), "10 s", is_needed=True,
    ),
    RetryField(
        "retry_first", "first_seconds", ("linear", "exponential"), "How long does it wait after the first failure?",
        _meaning(ExponentialRetryDelay, "first_seconds"), "1 s", is_needed=True,
    ),
    RetryField(
        "retry_step", "step_seconds", ("linear",), "How much longer does it wait each time?",
        _meaning(LinearRetryDelay, "step_seconds"), "5 s", is_needed=True,
    ),
    RetryField(
        "retry_factor", "factor", ("exponential",), "By which factor does the delay grow?",
        _meaning(ExponentialRetryDelay, "factor") + " From 1 to 1,000. Default: 2.", "2", is_duration=False,
    ),
    RetryField(
        "retry_longest", "max_seconds", ("linear", "exponential"), "How long does it wait at most?",
        f"{_meaning(ExponentialRetryDelay, 'max_seconds')} Default: {duration_text(MAX_DELAY)}.", duration_text(MAX_DELAY),
    ),
    RetryField(
        "retry_jitter", "jitter", ("exponential",), "How much shorter may a delay be at random?",
        _meaning(ExponentialRetryDelay, "jitter") + " So messages that failed together do not all come back together.",
        "0.2", is_duration=False,
    ),
    RetryField(
        "retry_delays", "delays_seconds", ("list",), "How long does it wait after each failure, separated by commas?",
        _meaning(ListRetryDelay, "delays_seconds"), "1 s, 10 s, 1 min", is_needed=True,
    ),
)  # fmt: skip
"""The fields of all kinds. Those of other kinds than the chosen one are not read."""

NAMES_BY_POINTER = {f"/retry/{field.json_name}": field.name for field in FIELDS} | {"/retry": KIND}

MAX_DRAWN = 12
"""Delays in a drawing. Those after them say little more."""

MAX_SUMMED = 1000
"""Failures up to which the time until the last one is said."""


@dataclass(frozen=True, slots=True)
class DrawnDelay:
    """The delay after one failure. `shortest` and `longest` are percents of the longest delay of the drawing."""

    failure: int
    text: str
    shortest: float
    longest: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """The delays of a policy, and a sentence about the time from the first failure to the last one."""

    delays: Sequence[DrawnDelay]
    sentence: str


def read_policy(fields: Mapping[str, str]) -> dict[str, object]:
    """Return the JSON of the policy in a form. Refuses with `InvalidRequest`. The shape of the settings checks the rest."""
    kind, faults = fields.get(KIND, "none"), FormFaults()
    policy: dict[str, object] = {"kind": kind}
    for field in FIELDS:
        text = fields.get(field.name, "").strip()
        if kind in field.kinds and (text or field.is_needed):
            with faults.collected():
                policy[field.json_name] = _value(field, text)
    faults.check()
    return policy


def policy_texts(policy: RetryPolicy) -> dict[str, str]:
    """Return what the fields of a form contain for a policy."""
    texts = dict.fromkeys((field.name for field in FIELDS), "")
    match policy:
        case NoDelay():
            return {KIND: "none", **texts}
        case FixedDelay(delay):
            return {KIND: "fixed", **texts, "retry_delay": duration_text(delay)}
        case LinearDelay(first, step, longest):
            steps = {"retry_step": duration_text(step)}
            return {KIND: "linear", **texts, **_growing(first, longest), **steps}
        case ExponentialDelay(first, factor, longest, jitter):
            shares = {
                "retry_factor": f"{factor!r}".removesuffix(".0"),
                "retry_jitter": f"{jitter!r}".removesuffix(".0"),
            }
            return {KIND: "exponential", **texts, **_growing(first, longest), **shares}
        case ListedDelays(delays):
            return {KIND: "list", **texts, "retry_delays": ", ".join(duration_text(delay) for delay in delays)}


def policy_sentence(policy: RetryPolicy) -> str:
    """Return a policy in words."""
    match policy:
        case NoDelay():
            return "at once"
        case FixedDelay(delay):
            return f"{duration_text(delay)} after each failure"
        case LinearDelay(first, step, longest):
            return (
                f"{duration_text(first)}, then {duration_text(step)} more each time, at most {duration_text(longest)}"
            )
        case ExponentialDelay(first, factor, longest, jitter):
            shorter = f", up to {jitter:.0%} shorter at random" if jitter else ""
            return f"{duration_text(first)}, then {factor:g} times as long, at most {duration_text(longest)}{shorter}"
        case ListedDelays(delays):
            return ", ".join(duration_text(delay) for delay in delays)


def drawing(policy: RetryPolicy, max_failures: int) -> Drawing:
    """Return the delays of a policy in a queue that dead-letters a message after this number of failures."""
    retries = max_failures - 1
    if not retries:
        return Drawing((), "The first failure dead-letters a message, so it never waits.")
    if not any(retry_delay(policy, number, 0.0) for number in range(1, min(retries, MAX_SUMMED) + 1)):
        return Drawing((), f"Each failed delivery is repeated at once. {_end(max_failures)}.")
    numbers = range(1, min(retries, MAX_DRAWN) + 1)
    drawn = [(number, retry_delay(policy, number, 1.0), retry_delay(policy, number, 0.0)) for number in numbers]
    scale = max(longest for _, _, longest in drawn) or 1
    delays = [
        DrawnDelay(number, _delay_text(shortest, longest), 100 * shortest / scale, 100 * longest / scale)
        for number, shortest, longest in drawn
    ]
    return Drawing(delays, _sentence(policy, max_failures))


def _value(field: RetryField, text: str) -> object:
    if not text:
        raise invalid_at(f"/{field.name}", f"Write a duration, such as {field.placeholder}.")
    if not field.is_duration:
        return _number(field, text)
    if field.json_name == "delays_seconds":
        return _listed(field, text)
    return _seconds(field, text)


def _number(field: RetryField, text: str) -> str:
    """Return a number as it was typed, for the shape to check. `nan` would pass as a number there."""
    if not (text.isascii() and text.replace(".", "", 1).isdecimal()):
        raise invalid_at(f"/{field.name}", f"Write a number, such as {field.placeholder}.")
    return text


def _listed(field: RetryField, text: str) -> list[float]:
    parts = text.split(",")
    if len(parts) > MAX_LISTED_DELAYS:
        raise invalid_at(f"/{field.name}", f"A list has at most {MAX_LISTED_DELAYS} delays.")
    return [_seconds(field, part) for part in parts]


def _seconds(field: RetryField, text: str) -> float:
    return seconds_in(FixedRetryDelay, ".delay_seconds", field.name, text)


def _growing(first: Duration, longest: Duration) -> dict[str, str]:
    return {"retry_first": duration_text(first), "retry_longest": duration_text(longest)}


def _delay_text(shortest: Duration, longest: Duration) -> str:
    low, high = rounded_duration_text(shortest), rounded_duration_text(longest)
    return high if low == high else f"{low} to {high}"


def _end(max_failures: int) -> str:
    return f"Failure {max_failures:,} dead-letters the message"


def _sentence(policy: RetryPolicy, max_failures: int) -> str:
    end = _end(max_failures)
    if max_failures > MAX_SUMMED:
        return f"{end}."
    total = sum(retry_delay(policy, number, 0.0) for number in range(1, max_failures))
    return f"{end}, {rounded_duration_text(total)} of delays after the first one."
