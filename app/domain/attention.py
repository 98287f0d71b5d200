"""Whether a queue needs the attention of an operator, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.consumer import ConsumerReport, ListedConsumer
from app.domain.instant import MINUTE, Duration, to_seconds
from app.domain.plurals import count_of
from app.domain.queue import QueueCounts, QueueStatus

STUCK_AFTER: Duration = 5 * MINUTE
"""How long messages wait without a delivery before their queue counts as stuck."""

_MIN_GROWTH = 20
_MIN_GROWTH_RATIO = 1.2
"""A queue grows if it has this many more messages than before, and this many times as many."""


class AttentionCause(StrEnum):
    """Why a queue needs attention, the most urgent first."""

    CONSUMER_PAUSED = "consumer_paused"
    STUCK = "stuck"
    DEAD_LETTERS = "dead_letters"
    GROWING = "growing"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Trend:
    """What has happened in a queue within `period`: its counts before, and the messages that came and left."""

    period: Duration
    waiting_before: int
    dead_lettered_before: int
    arrived: int
    left: int
    delivered: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Why a queue needs attention: the cause, and a sentence about it."""

    cause: AttentionCause
    reason: str


def attention_of(
    status: QueueStatus, counts: QueueCounts, trend: Trend, paused: Sequence[ListedConsumer] = ()
) -> Attention | None:
    """Return why a queue needs attention, the most urgent cause first, or None. `paused` are its consumers that are paused."""
    if paused:
        others = f"{len(paused)} consumers are paused. " if len(paused) > 1 else ""
        return Attention(AttentionCause.CONSUMER_PAUSED, others + _pause(paused[0].report))
    waiting = counts.available + counts.blocked
    if _is_stuck(status, counts, trend):
        waits = _duration(counts.oldest_available or 0)
        return Attention(
            AttentionCause.STUCK,
            f"No receiver takes its messages: {count_of(counts.available, 'message')} available, the oldest for {waits}.",
        )
    risen = counts.dead_lettered - trend.dead_lettered_before
    if risen > 0:
        return Attention(
            AttentionCause.DEAD_LETTERS, f"{count_of(risen, 'more dead letter')} in {_duration(trend.period)}."
        )
    if waiting >= trend.waiting_before + _MIN_GROWTH and waiting >= trend.waiting_before * _MIN_GROWTH_RATIO:
        came_and_went = f"{trend.arrived:,} arrived and {trend.left:,} left"
        return Attention(AttentionCause.GROWING, f"Growing: {came_and_went} in {_duration(trend.period)}.")
    if status is not QueueStatus.ACTIVE and waiting:
        return Attention(
            AttentionCause.PAUSED, f"{_PAUSED[status]} while {count_of(waiting, 'message waits', 'messages wait')}."
        )
    return None


_PAUSED = {
    QueueStatus.SEND_DISABLED: "Sends are disabled",
    QueueStatus.RECEIVE_DISABLED: "Receives are disabled",
    QueueStatus.DISABLED: "Sends and receives are disabled",
}


def _is_stuck(status: QueueStatus, counts: QueueCounts, trend: Trend) -> bool:
    if status in (QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED) or not counts.available:
        return False
    return (counts.oldest_available or 0) >= STUCK_AFTER and trend.period >= STUCK_AFTER and not trend.delivered


def _pause(report: ConsumerReport) -> str:
    who = f"The consumer {report.consumer} is" if report.target is None else f"Calls of {report.target} are"
    return f"{who} paused: {report.reason}"


def _duration(duration: Duration) -> str:
    """Format a duration in the largest whole unit."""
    seconds = int(to_seconds(duration))
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return count_of(seconds // size, unit)
    return count_of(seconds, "second")
