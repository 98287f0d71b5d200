"""The period of a report: whole hours in UTC, and the period of the same length directly before."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from peeklock_pipeline.ages import parse_age
from peeklock_pipeline.refusals import BadOption

HOUR = timedelta(hours=1)
EARLIEST = datetime.min.replace(tzinfo=UTC)

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
"""No message is older: servers count time from here."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `begin` to `end`, without `end` itself."""

    begin: datetime
    end: datetime

    @property
    def before(self) -> "Period":
        """The period of the same length directly before; it begins with the year 1 at the earliest."""
        return Period(self.begin - min(self.end - self.begin, self.begin - EARLIEST), self.begin)

    @property
    def seconds(self) -> float:
        """The length of the period."""
        return (self.end - self.begin).total_seconds()


def parse_period(begin: str | None, end: str | None, last: str | None, now: datetime | None = None) -> Period | None:
    """Return the period of the options `--from`, `--to` and `--last`; None if no option is given.

    `--last` ends with the current hour, and `--from` without `--to` too. Refuses with `BadOption` what is no time or
    age, an age below an hour, and an end that is not after the beginning.
    """
    present = _next_hour(now or datetime.now(UTC))
    if last is not None:
        if begin is not None or end is not None:
            raise BadOption("--last is a period up to now: give either --last, or --from and --to.")
        if (age := parse_age(last)) < HOUR:
            raise BadOption(f"A report has whole hours, so --last is at least 1h; {last} is not.")
        return _checked(Period(_hour(present - min(age, present - EARLIEST)), present))
    if begin is None:
        if end is not None:
            raise BadOption("--to needs --from, the beginning of the period.")
        return None
    return _checked(Period(_hour(_parse(begin)), present if end is None else _hour(_parse(end))))


def _checked(period: Period) -> Period:
    if period.begin < FIRST:
        raise BadOption(f"A period begins in {FIRST.year} at the earliest, because no message is older.")
    if period.end <= period.begin:
        raise BadOption(f"The period ends at {period.end:%F %H:%M}, which is not after {period.begin:%F %H:%M}.")
    return period


def _parse(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadOption(
            f"A time is a day or an hour, in UTC, such as 2026-11-01 or 2026-11-01T14:00; {text!r} is not."
        ) from None


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _next_hour(at: datetime) -> datetime:
    return _hour(at + HOUR - timedelta(microseconds=1))
