"""Changes since the period before, in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peeklock_pipeline.page import formatting
from peeklock_pipeline.page.summary import Measures, View

ENDS = ("completed", "received", "dead_lettered", "expired", "purged", "cancelled")

AS_BEFORE = "as before"
NONE_BEFORE = "none before"
NO_VALUE_BEFORE = "no value before"

MANY_TIMES = 2
"""From this factor on, a change is a factor and not a percentage."""


@dataclass(frozen=True, slots=True)
class Change:
    """A measure in this period and in the one before, and the change in words."""

    title: str
    now: str
    before: str
    words: str


def count_change(now: float, before: float) -> str:
    """Return the change of a count: "12 % more than before (11,000)"."""
    if before == 0:
        return NONE_BEFORE if now else AS_BEFORE
    return _relative(now, before, "more", "fewer", "as many", formatting.count)


def time_change(now: float | None, before: float | None) -> str:
    """Return the change of a duration: "2.5 times as long as before (900 ms)"."""
    if now is None or before is None:
        return (
            AS_BEFORE
            if now is before
            else NO_VALUE_BEFORE
            if before is None
            else f"{formatting.duration(before)} before"
        )
    if before <= 0 or now < 0:
        return AS_BEFORE if now == before else f"{formatting.duration(before)} before"
    return _relative(now, before, "longer", "shorter", "as long", formatting.duration)


def ratio_change(now: float | None, before: float | None, write: Callable[[float | None], str]) -> str:
    """Return the change of a share or an average: "up from 1.2 %"."""
    if before is None:
        return AS_BEFORE if now is None else NO_VALUE_BEFORE
    if now is None:
        return f"{write(before)} before"
    if write(now) == write(before):
        return AS_BEFORE
    return f"{'up' if now > before else 'down'} from {write(before)}"


def _relative(now: float, before: float, more: str, less: str, same: str, write: Callable[[float | None], str]) -> str:
    factor = now / before
    if write(now) == write(before):
        return AS_BEFORE
    if factor >= MANY_TIMES:
        return f"{f'{factor:.3g}' if factor < 999.5 else f'{factor:,.0f}'} times {same} as before ({write(before)})"
    percent = formatting.share(abs(factor - 1)).removesuffix(".0 %").removesuffix(" %")
    return f"{percent} % {more if factor > 1 else less} than before ({write(before)})"


def completed(measures: Measures) -> int:
    """Return how many messages were completed, or received and deleted in one step."""
    return measures["completed"] + measures["received"]


def ended(measures: Measures) -> int:
    """Return how many messages ended."""
    return sum(measures[name] for name in ENDS)


def part_of_ended(measures: Measures, count: int) -> float | None:
    """Return a count as a share of the messages that ended; None if none did."""
    return count / ended(measures) if ended(measures) else None


COUNTS: Sequence[tuple[str, Callable[[Measures], int]]] = (
    ("Sent", lambda of: of["sent"]),
    ("Completed", completed),
    ("Dead-lettered", lambda of: of["dead_lettered"]),
    ("Expired", lambda of: of["expired"]),
    ("Purged or cancelled", lambda of: of["purged"] + of["cancelled"]),
)
RATIOS: Sequence[tuple[str, str, Callable[[float | None], str]]] = (
    ("Delivered more than once", "redelivery_share", formatting.share),
    ("Deliveries of a message", "deliveries_per_message", formatting.decimal),
)
DURATIONS = (
    ("Half completed within", "end_to_end_p50"),
    ("95 % completed within", "end_to_end_p95"),
    ("99 % completed within", "end_to_end_p99"),
    ("95 % waited at most", "waiting_p95"),
    ("95 % processed within", "processing_p95"),
)


def all_changes(view: View) -> list[Change]:
    """Return the change of each measure of all messages or of a queue; none if no period is compared."""
    if (old := view.before) is None or view.key.kind in ("group", "reason"):
        return []
    new = view.totals
    counts = [
        Change(title, formatting.count(of(new)), formatting.count(of(old)), count_change(of(new), of(old)))
        for title, of in COUNTS
    ]
    ratios = [
        Change(title, write(new[name]), write(old[name]), ratio_change(new[name], old[name], write))
        for title, name, write in RATIOS
    ]
    durations = [
        Change(title, formatting.duration(new[name]), formatting.duration(old[name]), time_change(new[name], old[name]))
        for title, name in DURATIONS
    ]
    return [*counts, *ratios, *durations]
