"""The progress of a job, for callers that show it."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the amount done and the total: messages, files, batches, queries or steps, depending on the job."""


def no_progress(done: int, total: int) -> None:
    """Ignore the progress."""
