"""The counted content of a page: a few dozen rows, independent of the length of the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Measures = Mapping[str, Any]
"""The measures of a report by name; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of time, by its start; `measures` is None if nothing happened in it."""

    at: datetime
    measures: Measures | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A report about `queue`, or about all queues.

    Each of `intervals` is `width` seconds long. If there are more `queues` or `reasons` than rows, the last row has
    None for a name and sums up the rest. `first` and `last` are None if no message is known.
    """

    made_at: datetime
    queue: str | None
    first: datetime | None
    last: datetime | None
    width: int
    totals: dict[str, Any]
    intervals: Sequence[Interval]
    queues: Sequence[Measures]
    queues_in_all: int
    reasons: Sequence[Measures]
    groups: Sequence[Measures]

    @classmethod
    def empty(cls, made_at: datetime, queue: str | None) -> "Summary":
        """Return a report about no message."""
        return cls(made_at, queue, None, None, 1, {"sent": 0}, (), (), 0, (), ())

    @property
    def messages(self) -> int:
        """The number of known messages."""
        return self.totals["sent"]

    def timeline(self) -> list[Interval]:
        """Return all intervals from the first to the last, including those in which nothing happened."""
        if not self.intervals:
            return []
        known = {interval.at: interval for interval in self.intervals}
        step, begins, ends = timedelta(seconds=self.width), min(known), max(known)
        every = [begins + step * number for number in range((ends - begins) // step + 1)]
        return [known.get(at, Interval(at, None)) for at in every]
