"""Read the filter of a request."""

from app.broker.filters import CelFilter, Filter, MatchAll


def parse_filter(source: str | None, pointer: str = "/filter") -> Filter:
    """The filter of this source, everything without one. Refuses with `InvalidRequest`."""
    return MatchAll() if source is None else CelFilter(source, pointer)
