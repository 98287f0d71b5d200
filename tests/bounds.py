"""Bounds for loops in tests, so that a loop without an end fails with a sentence instead of hanging."""

from collections.abc import Iterator

MAX_ROUNDS = 10_000
"""More rounds than any loop of a test needs."""


def bounded(what: str, limit: int = MAX_ROUNDS) -> Iterator[int]:
    """Count the rounds of a loop that ends with `break` or `return`; fail, saying what did not happen, after `most`."""
    yield from range(limit)
    raise AssertionError(f"after {limit} rounds this has not happened: {what}")
