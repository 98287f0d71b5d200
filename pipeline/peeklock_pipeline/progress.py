"""How far a job is, for whoever wants to hear it."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Hears how much of how much is done: messages, batches, answers or steps, as suits the job."""


def no_progress(done: int, total: int) -> None:
    """Nobody hears it."""
