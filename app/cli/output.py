"""Prints answers: as a table or sentence for people, as JSON or as YAML."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, cast

import msgspec
import typer

from app.cli.yaml_text import yaml_document

MAX_INT_DIGITS = 18
"""Characters of an integer, with its sign, that always fit into 64 bits."""

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


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under column headings. Where the terminal is too narrow, print each field of a row on its own line.

    A folded row could be neither copied nor searched. What goes to a file or a pipe has one line for each row.
    """
    cells = [[cell_text(value) for value in row] for row in rows]
    if sys.stdout.isatty() and _line_width(columns, cells) > shutil.get_terminal_size().columns:
        for number, row in enumerate(cells, start=1):
            typer.echo(_heading(f"{number}"))
            print_aligned([*zip(columns, row, strict=True)])
        return
    typer.echo(_heading(aligned_line(columns, _widths(columns, cells))))
    print_aligned(cells, columns)


def print_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under column headings, each on one line of any length."""
    cells = [[cell_text(value) for value in row] for row in rows]
    typer.echo(_heading(aligned_line(columns, _widths(columns, cells))))
    print_aligned(cells, columns)


def print_aligned(rows: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> None:
    """Print rows whose columns begin at the same place."""
    widths = _widths(columns, rows)
    for row in rows:
        typer.echo(aligned_line(row, widths))


def aligned_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return cells as a line, each padded to the width of its column."""
    return "  ".join(
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


def _line_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    widths = _widths(columns, rows)
    return sum(widths) + 2 * (len(widths) - 1)


def _cell_width(text: str) -> int:
    """Return the columns of a terminal that a text takes: some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else Decimal(digits)
