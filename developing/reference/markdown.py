"""The parts of a generated page: its head, tables and lists of types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `python3 dev.py docs --generate`. Do not edit it. -->"


def page(title: str, *parts: str) -> str:
    """Return a page with this title. Empty parts are left out."""
    return "\n\n".join([GENERATED, f"# {title}", *filter(None, (part.strip() for part in parts))]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing without rows."""
    lines = [_row(cells) for cells in rows]
    return "\n".join([_row(header), f"|{'---|' * len(header)}", *lines]) if lines else ""


def code(text: str) -> str:
    """Return text as code; nothing if it is empty."""
    return f"`{text}`" if text else ""


def block(kind: str, text: str) -> str:
    """Return lines of code."""
    return f"```{kind}\n{text}\n```"


def _row(cells: Sequence[str]) -> str:
    one_line = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in one_line)}|"
