"""Bounds for loops in tests, so that a loop without an end fails with a sentence instead of hanging."""

from collections.abc import Iterator

MOST_ROUNDS = 10_000
"""More rounds than any loop of a test needs."""


def bounded(what: str, most: int = MOST_ROUNDS) -> Iterator[int]:
    """Count the rounds of a loop that ends with `break` or `return`; fail, saying what did not happen, after `most`."""
    yield from range(most)
    raise AssertionError(f"after {most} rounds this has not happened: {what}")
