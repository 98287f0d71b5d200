"""`peeklock watch | top`: the counts of queues while they change."""

import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.option_groups import with_options
from app.cli.output import GAP, Layout, aligned_line, cell_text, fitting_layout, print_table
from app.cli.queues import COUNTS, queue_row

Interval: TypeAlias = Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")]
Rounds: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Stop after this number of readings.")]

OLDEST = "oldest_available_seconds"
WATCH_COLUMNS = ("time", *COUNTS, OLDEST)
TOP_COLUMNS = ("queue", "status", "change", *COUNTS, OLDEST)
WIDEST = ("00:00:00", *("0" * 6 for _ in COUNTS), "000000.0")
"""A reading of `watch` as wide as its columns are at least."""

ROWS = 40
"""Queues that `top` shows by default, unless the screen is smaller."""

CLEAR = "\x1b[H\x1b[2J"


@with_options(client=CONNECTION)
def watch(name: QueueName, client: ApiClient, interval: Interval = 2.0, count: Rounds = None) -> None:
    """Print the counts of a queue, line by line, until Ctrl-C."""
    layout = fitting_layout(WATCH_COLUMNS, [WIDEST]) or Layout(WATCH_COLUMNS, GAP)
    widths = [*map(max, map(len, layout.headings), map(len, WIDEST))]
    if not client.printer.is_for_programs:
        typer.echo(aligned_line(layout.headings, widths, layout.gap))

    def show_reading() -> None:
        fields = client.call("GET", queue_path(name))
        now = datetime.now(UTC).astimezone()
        if client.printer.is_for_programs:
            client.printer.document({"time": now.isoformat(), **_counts(fields)})
        else:
            counts = map(cell_text, _rounded(_counts(fields)).values())
            typer.echo(aligned_line([f"{now:%H:%M:%S}", *counts], widths, layout.gap))

    _repeat(show_reading, interval, count)


@with_options(client=CONNECTION)
def top(
    client: ApiClient,
    interval: Interval = 2.0,
    count: Rounds = None,
    sort: Annotated[str, typer.Option(help="Column to sort by, the largest value first.")] = "available",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of queues: 40, or as many as the screen shows.")
    ] = None,
) -> None:
    """Show the queues with the most messages until Ctrl-C. `change` is the difference from the last reading."""
    if sort not in (*COUNTS, OLDEST, "change"):
        raise typer.BadParameter(f"--sort takes one of {', '.join((*COUNTS, OLDEST, 'change'))}.")
    before: dict[str, int] = {}

    def show_reading() -> None:
        rows = [_top_row(fields, before) for fields in client.pages("/v1/queues", {})]
        rows.sort(key=lambda row: (-(row[sort] or 0), row["queue"]))
        if client.printer.is_for_programs:
            client.printer.document({"time": datetime.now(UTC).isoformat(), "queues": rows[: limit or ROWS]})
            return
        shown = [[_rounded(row)[column] for column in TOP_COLUMNS] for row in rows[: limit or ROWS]]
        lines = _cleared_lines()
        print_table(TOP_COLUMNS, shown, None if limit else lines)

    _repeat(show_reading, interval, count)


def _top_row(fields: dict[str, Any], before: dict[str, int]) -> dict[str, Any]:
    """Return the row of a queue, and remember the number of its messages."""
    number = sum(fields["counts"].values())
    change = number - before.get(fields["name"], number)
    before[fields["name"]] = number
    return {**queue_row(fields), "change": change, OLDEST: fields[OLDEST]}


def _cleared_lines() -> int | None:
    """Clear the screen, and return the lines that it has above the cursor. None if there is no screen."""
    if not sys.stdout.isatty():
        return None
    typer.echo(CLEAR, nl=False)
    return shutil.get_terminal_size().lines - 1


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return counts as people read them, with a tenth of a second."""
    return {**fields, OLDEST: fields[OLDEST] and round(float(fields[OLDEST]), 1)}


def _counts(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields["counts"], OLDEST: fields[OLDEST]}


def _repeat(show_reading: Callable[[], None], interval: float, count: int | None) -> None:
    """Show a reading at each interval. Ctrl-C ends it as usual."""
    done = 0
    while True:
        show_reading()
        sys.stdout.flush()
        done += 1
        if count is not None and done >= count:
            return
        time.sleep(interval)
