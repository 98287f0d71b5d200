"""What has happened in a queue before the samples of this process: its history by minute, as far as it is recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.history import Event, EventCount
from app.domain.instant import HOUR, MINUTE, SECOND, Instant
from app.domain.settlement import Outcome

LONGEST = 6 * HOUR
SERIES: Mapping[Event, str] = {
    Event.SENT: "Sent",
    Event.DELIVERED: "Delivered",
    Event.SETTLED: "Completed",
    Event.RELEASED: "Failed",
}
FAILURES = (Outcome.ABANDONED, Outcome.DEAD_LETTERED)
"""Settlements that count as failed."""
NO_FAILURES = (Outcome.RELEASED, Outcome.ENTITY_CHANGED)
"""Ends of deliveries without a settlement that count no failure."""


def past_plot(counts: Sequence[EventCount], now: Instant) -> dict[str, Any] | None:
    """Return the points of a plot by minute up to now, None without a recorded event."""
    last = now - now % MINUTE
    recent = [one for one in counts if last - LONGEST < one.minute <= last]
    if not recent:
        return None
    first = recent[0].minute
    size = (last - first) // MINUTE + 1
    series: dict[str, list[int]] = {name: [0] * size for name in SERIES.values()}
    for one in recent:
        if (name := series_of(one)) is not None:
            series[name][(one.minute - first) // MINUTE] += one.count
    return {"minutes": [(first + index * MINUTE) / SECOND for index in range(size)], "past": series}


def series_of(count: EventCount) -> str | None:
    """Return the name of the series that counts an event, None for one that is not shown."""
    if count.event is Event.SETTLED and count.outcome in FAILURES:
        return SERIES[Event.RELEASED]
    return None if count.outcome in NO_FAILURES else SERIES.get(count.event)
