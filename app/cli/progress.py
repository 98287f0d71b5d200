"""Shows the progress of a command on a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress(word: str, total: int | None) -> Generator[Callable[[int], object]]:
    """Show a progress bar on standard error while the block runs. Yields a function that takes the number done so far."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(word, total=total)
        yield lambda done: bar.update(task, completed=done)
