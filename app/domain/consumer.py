"""Consumers of a queue, as they report themselves: whether each receives, and why not."""

from dataclasses import dataclass, replace
from enum import StrEnum

from app.domain.instant import SECOND, Duration, Instant
from app.domain.refusals import BackendUnavailable, Conflict

MAX_CONSUMERS_OF_QUEUE = 100
"""Consumers of a queue that are listed at the same time."""

MAX_CONSUMERS = 2000
"""Consumers of all queues that are listed at the same time."""

MAX_PAUSE_REASON_LENGTH = 500
MAX_TARGET_LENGTH = 500
MIN_REPORT_TTL: Duration = SECOND
MAX_REPORT_TTL: Duration = 300 * SECOND
"""The longest time for which a report is valid. A consumer that runs for longer repeats its report."""


class ConsumerState(StrEnum):
    """Whether a consumer takes messages."""

    RECEIVING = "receiving"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """What a consumer says about itself.

    The principal is that of its API key, so the consumers of two principals never have the same identity. `reason` says why
    it is paused, and is empty while it receives. `target` is the URL that it calls for each message, None for any other
    consumer.
    """

    consumer: str
    principal: str
    state: ConsumerState
    reason: str = ""
    target: str | None = None


@dataclass(frozen=True, slots=True)
class ListedConsumer:
    """A consumer whose last report is valid: when it reported first and last, and since when it has its state."""

    report: ConsumerReport
    first_reported_at: Instant
    state_since: Instant
    reported_at: Instant


def listed_after(before: ListedConsumer | None, report: ConsumerReport, now: Instant) -> ListedConsumer:
    """Return a consumer after a report. `before` is how it was listed, None if it was not."""
    if before is None:
        return ListedConsumer(report, now, now, now)
    since = before.state_since if before.report.state is report.state else now
    return replace(before, report=report, state_since=since, reported_at=now)


class TooManyConsumers(Conflict):
    """The queue, or all queues together, list as many consumers as they may; try again later."""

    code = "too-many-consumers"
    retryable = True


class ConsumersUnknown(BackendUnavailable):
    """Redis, which keeps the reports of consumers, does not answer this server now. Receives and settlements work without it."""

    code = "consumers-unknown"
