"""What a page shows, already counted: a few dozen rows, however long the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Measures = Mapping[str, Any]
"""The measures of a report by their names; what nothing was measured of is None."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the time, by its beginning; `measures` None where nothing happened in it."""

    at: datetime
    measures: Measures | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A report about `queue`, or about all queues.

    Each of `parts` is `width` seconds long. The last row of `queues` and `reasons` has None for a name where there are
    more than are shown, and counts all of those. `first` and `last` are None where no message is known.
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
        """A report about no message."""
        return cls(made_at, queue, None, None, 1, {"sent": 0}, (), (), 0, (), ())

    @property
    def messages(self) -> int:
        """How many messages are known."""
        return self.totals["sent"]

    def timeline(self) -> list[Interval]:
        """The parts from the first to the last, with those between in which nothing happened."""
        if not self.intervals:
            return []
        known = {part.at: part for part in self.intervals}
        step, begins, ends = timedelta(seconds=self.width), min(known), max(known)
        every = [begins + step * number for number in range((ends - begins) // step + 1)]
        return [known.get(at, Interval(at, None)) for at in every]
