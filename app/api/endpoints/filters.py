"""Read the filter of a request."""

from app.broker.filtering.filters import CelFilter, Filter, MatchAll


def parse_filter(source: str | None, pointer: str = "/filter") -> Filter:
    """Return the filter of a request; None matches every message. Refuses with `InvalidRequest`."""
    return MatchAll() if source is None else CelFilter(source, pointer)
