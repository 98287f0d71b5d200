"""Parses ages: 400d, 12h, 30m, 90s."""

import re
from datetime import timedelta

from peeklock_pipeline.refusals import BadOption

UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def parse_age(text: str) -> timedelta:
    """Return the age in a text such as `400d`. Refuses with `BadOption`."""
    if not (found := re.fullmatch(r"(\d{1,6})([dhms])", text.strip())):
        raise BadOption(f"An age is a number and a unit, such as 400d, 12h, 30m or 90s; {text!r} is not.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})
