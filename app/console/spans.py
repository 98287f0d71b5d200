"""The spans of time for which the overview has plots, and the points that are kept of each."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.broker.ports.server_directory import WINDOW_SECONDS

LARGEST = 2**32 - 1
"""The largest number of a point; it has four bytes."""

PLOTTED = ("sent", "completed", "failed", "waiting")
"""The series with points: the events within each, and at its end the messages that wait."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, in points of as many samples each."""

    name: str
    label: str
    samples: int
    points: int

    @property
    def point_seconds(self) -> float:
        """How long one point lasts."""
        return self.samples * WINDOW_SECONDS


SHORTEST = Span("15m", "15 minutes", 1, 180)
SPANS: Sequence[Span] = (
    SHORTEST,
    Span("1h", "hour", 6, 120),
    Span("6h", "6 hours", 36, 120),
    Span("24h", "24 hours", 144, 120),
)
LONGER = SPANS[1:]


def span_of(name: str) -> Span:
    """Return the span of this name, the shortest for an unknown name."""
    return next((span for span in SPANS if span.name == name), SHORTEST)


class SpanPoints:
    """The points of one queue in one span, the newest last. The newest one may have more samples to come."""

    __slots__ = ("_series", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._series = {name: array("I") for name in PLOTTED}

    def add(self, sample: Mapping[str, int], begins_point: bool) -> None:
        """Add a sample to the newest point or to a new one, and drop the points that are older than the span."""
        for name, series in self._series.items():
            amount = sample.get(name, 0)
            if begins_point or not series:
                series.append(min(amount, LARGEST))
            else:
                series[-1] = min(amount if name == "waiting" else series[-1] + amount, LARGEST)
            if len(series) > self._span.points:
                del series[0]

    def series(self, name: str) -> Sequence[int]:
        """Return the points of a series."""
        return self._series[name]


class SpanTimes:
    """When the points of each span end, in seconds since 1970. All queues share them."""

    def __init__(self) -> None:
        self._samples = 0
        self._times = {span: array("d") for span in SPANS}

    def begins_point(self, span: Span) -> bool:
        """Return whether the next sample begins a point."""
        return self._samples % span.samples == 0

    def add(self, at: float) -> None:
        """Add the time of a sample, after the queues have it."""
        for span, times in self._times.items():
            if self.begins_point(span) or not times:
                times.append(at)
            else:
                times[-1] = at
            if len(times) > span.points:
                del times[0]
        self._samples += 1

    def of(self, span: Span) -> Sequence[float]:
        """Return the times of the points of a span, the newest last."""
        return self._times[span]

    def samples_of_newest(self, span: Span) -> int:
        """Return how many samples the newest point has so far, 0 without one."""
        return (self._samples - 1) % span.samples + 1 if self._samples else 0
