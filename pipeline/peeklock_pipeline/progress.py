"""How far a job is, for whoever wants to hear it."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Hears how much of how much is done: messages, batches, answers or steps, as suits the job."""


def unheard(done: int, of: int) -> None:
    """Nobody hears it."""
