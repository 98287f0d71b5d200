"""The counted content of a page: its views, each with some dozen rows, independent of the length of the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from peeklock_pipeline.period import Period

Measures = Mapping[str, Any]
"""The measures of a report by name; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of time, by its start; `measures` is None if nothing happened in it."""

    at: datetime
    measures: Measures | None


@dataclass(frozen=True, slots=True)
class ViewKey:
    """What a view is about: `all`, a `queue`, a `group` of a queue, or a dead-letter `reason` of all queues.

    The queue of the sum of all queues without a view is None.
    """

    kind: str
    queue: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The measures of a view: in the period, in the period before if it is compared, and in each interval."""

    key: ViewKey
    totals: Measures
    before: Measures | None
    intervals: Sequence[Interval]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The period before, or the reason for which nothing is compared."""

    before: Period | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A report about `queue`, or about all queues, in a period, or in all of the time that the lake knows.

    Each interval is `width` seconds long. The last of `queues` may be the sum of the queues without a view. `reasons`
    has the number of messages of each queue and reason; None sums up the rest. `first` and `last` are the first and
    last moment in the lake, None if no message is known. `unarchived` has the number of messages of each queue that left it
    without a row, because it keeps no archive: no other number contains them.
    """

    made_at: datetime
    queue: str | None
    period: Period | None
    comparison: Comparison
    first: datetime | None
    last: datetime | None
    width: int
    overview: View | None
    queues: Sequence[View]
    queues_in_all: int
    reasons: Sequence[Measures]
    groups: Sequence[Measures]
    views: Sequence[View]
    unarchived: Mapping[str, int]

    def unarchived_of(self, view: View) -> int:
        """Return how many messages of a view left without a row. 0 for a group, a reason or other queues: it is unknown."""
        match view.key.kind:
            case "all":
                return sum(self.unarchived.values())
            case "queue":
                return self.unarchived.get(view.key.queue or "", 0)
            case _:
                return 0

    @property
    def messages(self) -> int:
        """The number of messages that were sent in the period."""
        return self.totals["sent"]

    @property
    def totals(self) -> Measures:
        """The measures of all messages in the period."""
        return self.overview.totals if self.overview else {"sent": 0}

    @property
    def span(self) -> Period | None:
        """The period, or the time from the first to the last moment in the lake."""
        if self.period is not None or self.first is None or self.last is None:
            return self.period
        return Period(self.first, self.last)

    @property
    def ends_early(self) -> bool:
        """Whether the lake's last moment is more than an hour before the end of the period."""
        return bool(self.period and self.last and self.period.end - self.last > timedelta(hours=1))

    @property
    def left_out(self) -> str:
        """The sentence about what has no view."""
        queues = sum(view.key.queue is not None for view in self.queues)
        others = self.queues_in_all - queues
        sentence = (
            "The slowest groups and the most frequent reasons have a view each. Of a queue and day with more than 100 groups "
            "or reasons, only the slowest and the most frequent 100 are known."
        )
        if others:
            sentence += f" The {queues} largest queues have a view each; {others:,} more are summed up."
        return f"{sentence} For one queue: peeklock-pipeline report --queue NAME." if not self.queue else sentence

    def timeline(self, view: View) -> list[Interval]:
        """Return all intervals of the page for a view, including those in which nothing happened."""
        if (span := self.span) is None:
            return []
        begin = span.begin.timestamp() // self.width * self.width
        end = span.end.timestamp() - (1e-6 if self.period else 0)
        known = {interval.at: interval for interval in view.intervals}
        start, step = datetime.fromtimestamp(begin, span.begin.tzinfo), timedelta(seconds=self.width)
        every = [start + step * number for number in range(int((end - begin) // self.width) + 1)]
        return [known.get(at, Interval(at, None)) for at in every]
