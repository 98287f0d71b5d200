"""Prints answers: as a table or sentence for people, as JSON or as YAML."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple, cast

import msgspec
import typer

from app.cli.yaml_text import yaml_document

MAX_INT_DIGITS = 18
"""Characters of an integer, with its sign, that always fit into 64 bits."""

GAP = "  "
"""What separates the columns of a table, if the terminal is wide enough."""

SHORT_HEADINGS = {
    "available": "avail",
    "scheduled": "sched",
    "locked": "lock",
    "deferred": "defer",
    "dead_lettered": "dead",
    "blocked": "block",
    "uncommitted": "uncom",
    "oldest_available_seconds": "oldest",
    "sequence_number": "number",
    "priority": "prio",
    "failure_count": "fails",
    "delivery_count": "deliveries",
}
"""Headings of columns on a terminal that is too narrow for their names."""

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"

_encode = msgspec.json.Encoder(decimal_format="number").encode


class Output(StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Printer:
    """Prints in one form. Without a form, each command prints what is most useful to a person."""

    output: Output | None = None

    @property
    def is_for_programs(self) -> bool:
        """Whether documents are printed."""
        return self.output in (Output.JSON, Output.YAML)

    def document(self, document: Any) -> None:
        """Print a document: YAML if it is asked for, else JSON on one line."""
        typer.echo(f"---\n{yaml_document(document)}" if self.output is Output.YAML else _encode(document))

    def answer(self, document: Any, sentence: str) -> None:
        """Print a document, or a sentence for people."""
        self.document(document) if self.is_for_programs else typer.echo(sentence)

    def fields(self, document: Mapping[str, Any]) -> None:
        """Print a document, or a table with a line for each of its fields."""
        if self.is_for_programs:
            self.document(document)
        else:
            print_lines(("field", "value"), list(document.items()))

    def rows(self, documents: Iterable[Mapping[str, Any]], columns: Sequence[str], things: str) -> None:
        """Print each document, or a table of these columns. An empty result is named on standard error."""
        listed: list[Mapping[str, Any]] = []
        for document in documents:
            listed.append(document)
            if self.is_for_programs:
                self.document(document)
        if not listed:
            say(f"No {things}.")
        elif not self.is_for_programs:
            print_table(columns, [[document.get(column) for column in columns] for document in listed])

    def problem(self, problem: Mapping[str, Any]) -> None:
        """Print a problem document to standard error: its code, its detail and its faults, or the whole of it."""
        if self.output is Output.YAML:
            say(yaml_document(problem).rstrip())
        elif self.output is Output.JSON:
            say(_encode(problem).decode())
        else:
            say(f"{problem['code']}: {problem['detail']}")
            for fault in problem.get("errors", ()):
                sentence = "" if fault["detail"] == problem["detail"] else f": {fault['detail']}"
                say(f"  at {fault['pointer']}{sentence}")


def say(sentence: str) -> None:
    """Print a sentence to standard error."""
    typer.echo(sentence, err=True)


def print_value(value: Any, *, line_break: bool = True) -> None:
    """Print a JSON value, a string as text."""
    typer.echo(value if isinstance(value, str) else _encode(value), nl=line_break)


def read_json(content: bytes) -> Any:
    """Decode JSON and keep numbers exact: a message may contain numbers that fit no machine type."""
    return json.loads(content, parse_float=Decimal, parse_int=_parse_int)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], lines: int | None = None) -> None:
    """Print rows under column headings, or each field of a row on its own line where the terminal is too narrow.

    A folded row could be neither copied nor searched. What goes to a file or a pipe has one line for each row. With
    `lines`, the rows that fit on that number of lines are printed, at least one.
    """
    cells = [[cell_text(value) for value in row] for row in rows]
    layout = fitting_layout(columns, cells)
    lines_of_row, lines_of_heading = (1, 1) if layout else (len(columns) + 1, 0)
    if lines is not None:
        cells = cells[: max((lines - lines_of_heading) // lines_of_row, 1)]
    if layout:
        typer.echo(_heading(aligned_line(layout.headings, _widths(layout.headings, cells), layout.gap)))
        print_aligned(cells, layout.headings, layout.gap)
        return
    for number, row in enumerate(cells, start=1):
        typer.echo(_heading(f"{number}"))
        print_aligned([*zip(columns, row, strict=True)])


class Layout(NamedTuple):
    """The headings of a table, and what separates its columns."""

    headings: Sequence[str]
    gap: str


def fitting_layout(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Layout | None:
    """Return the first layout that the terminal is wide enough for: short headings follow full ones."""
    full, short = Layout(columns, GAP), Layout([SHORT_HEADINGS.get(column, column) for column in columns], " ")
    if not sys.stdout.isatty():
        return full
    available = shutil.get_terminal_size().columns
    return next((layout for layout in (full, short) if _line_width(layout, rows) <= available), None)


def print_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under column headings, each on one line of any length."""
    cells = [[cell_text(value) for value in row] for row in rows]
    typer.echo(_heading(aligned_line(columns, _widths(columns, cells))))
    print_aligned(cells, columns)


def print_aligned(rows: Sequence[Sequence[str]], columns: Sequence[str] = (), gap: str = GAP) -> None:
    """Print rows whose columns begin at the same place."""
    widths = _widths(columns, rows)
    for row in rows:
        typer.echo(aligned_line(row, widths, gap))


def aligned_line(cells: Sequence[str], widths: Sequence[int], gap: str = GAP) -> str:
    """Return cells as a line, each padded to the width of its column."""
    return gap.join(
        cell + " " * (width - _cell_width(cell)) for cell, width in zip(cells, widths, strict=True)
    ).rstrip()


def cell_text(value: Any) -> str:
    """Return a value as text for a person, on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return ", ".join(
            cell_text(member) if name == "kind" else f"{name} {cell_text(member)}" for name, member in members
        )
    if isinstance(value, list):
        return ", ".join(map(cell_text, cast("list[Any]", value)))
    # A control character could move the cursor, or break the line.
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(value))


def _heading(text: str) -> str:
    return f"{BOLD}{text}{PLAIN}" if sys.stdout.isatty() else text


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    lines = [columns, *rows] if columns else rows
    return [max(map(_cell_width, column)) for column in zip(*lines, strict=True)]


def _line_width(layout: Layout, rows: Sequence[Sequence[str]]) -> int:
    widths = _widths(layout.headings, rows)
    return sum(widths) + len(layout.gap) * (len(widths) - 1)


def _cell_width(text: str) -> int:
    """Return the columns of a terminal that a text takes: some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else Decimal(digits)
