"""Retry policies in requests and responses."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.instant import from_seconds, to_seconds
from app.domain.retry import (
    MAX_DELAY,
    MAX_LISTED_DELAYS,
    ExponentialDelay,
    FixedDelay,
    LinearDelay,
    ListedDelays,
    NoDelay,
    RetryPolicy,
)
from app.wire.field_types import DelaySeconds

MAX_DELAY_SECONDS = to_seconds(MAX_DELAY)

Factor: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=1000)]
Jitter: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
DelayList: TypeAlias = Annotated[list[DelaySeconds], msgspec.Meta(min_length=1, max_length=MAX_LISTED_DELAYS)]


class NoRetryDelay(msgspec.Struct, tag_field="kind", tag="none", forbid_unknown_fields=True):
    """Deliver again at once."""


class FixedRetryDelay(msgspec.Struct, tag_field="kind", tag="fixed", forbid_unknown_fields=True):
    """The same delay after every failure."""

    delay_seconds: DelaySeconds


class LinearRetryDelay(msgspec.Struct, tag_field="kind", tag="linear", forbid_unknown_fields=True):
    """`first_seconds`, then `step_seconds` more after each failure, up to `max_seconds`."""

    first_seconds: DelaySeconds
    step_seconds: DelaySeconds
    max_seconds: DelaySeconds = MAX_DELAY_SECONDS


class ExponentialRetryDelay(msgspec.Struct, tag_field="kind", tag="exponential", forbid_unknown_fields=True):
    """`first_seconds`, then `factor` times the previous delay, up to `max_seconds`.

    A random share of up to `jitter` is subtracted from each delay.
    """

    first_seconds: DelaySeconds
    factor: Factor = 2.0
    max_seconds: DelaySeconds = MAX_DELAY_SECONDS
    jitter: Jitter = 0.0


class ListRetryDelay(msgspec.Struct, tag_field="kind", tag="list", forbid_unknown_fields=True):
    """One delay per failure, in order; the last one applies to all further failures."""

    delays_seconds: DelayList


RetrySettings: TypeAlias = NoRetryDelay | FixedRetryDelay | LinearRetryDelay | ExponentialRetryDelay | ListRetryDelay


def to_retry_policy(settings: RetrySettings) -> RetryPolicy:
    """Convert to the retry policy of the broker."""
    match settings:
        case NoRetryDelay():
            return NoDelay()
        case FixedRetryDelay(delay_seconds=delay):
            return FixedDelay(from_seconds(delay))
        case LinearRetryDelay(first_seconds=first, step_seconds=step, max_seconds=longest):
            return LinearDelay(from_seconds(first), from_seconds(step), from_seconds(longest))
        case ExponentialRetryDelay(first_seconds=first, factor=factor, max_seconds=longest, jitter=jitter):
            return ExponentialDelay(from_seconds(first), factor, from_seconds(longest), jitter)
        case ListRetryDelay(delays_seconds=delays):
            return ListedDelays(tuple(from_seconds(delay) for delay in delays))


def retry_settings(policy: RetryPolicy) -> RetrySettings:
    """Build the JSON of a retry policy."""
    match policy:
        case NoDelay():
            return NoRetryDelay()
        case FixedDelay(delay):
            return FixedRetryDelay(to_seconds(delay))
        case LinearDelay(first, step, longest):
            return LinearRetryDelay(to_seconds(first), to_seconds(step), to_seconds(longest))
        case ExponentialDelay(first, factor, longest, jitter):
            return ExponentialRetryDelay(to_seconds(first), factor, to_seconds(longest), jitter)
        case ListedDelays(delays):
            return ListRetryDelay([to_seconds(delay) for delay in delays])
