"""Bounds for loops in tests: an endless loop fails with a sentence instead of hanging."""

from collections.abc import Iterator

MAX_ROUNDS = 10_000
"""More iterations than any loop of a test needs."""


def bounded(what: str, limit: int = MAX_ROUNDS) -> Iterator[int]:
    """Count the iterations of a loop that ends with `break` or `return`. After `limit`, fail and name what did not happen."""
    yield from range(limit)
    raise AssertionError(f"this did not happen in {limit} iterations: {what}")
