"""Named statements with their values written in, as MariaDB and MySQL read them.

Values travel inside the text because only so do several statements share one round trip, and rows of one statement vary
in number. The driver can do the same, but takes thirty times as long over a body of 1 KiB.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from app.store.mysql import dialect
from app.store.records.statements import Statement

INSERT = re.compile(rb"(.*?\nVALUES )(.*?)(\nON DUPLICATE KEY .*)?", re.DOTALL)
"""An INSERT: what comes before the one row of values that it repeats, the row, and what comes after."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Template:
    """A statement as bytes with `%s` for each value, and the names of the values in that order."""

    text: bytes
    names: tuple[str, ...]

    def render(self, values: Mapping[str, Any]) -> bytes:
        """The statement with these values."""
        return self.text % tuple(literal(values[name]) for name in self.names)

    def render_inserts(self, rows: Iterable[Mapping[str, Any]], largest: int) -> Iterable[bytes]:
        """The INSERT with all these rows, in their order, as few statements of at most so many bytes.

        A row that is larger by itself makes a larger statement, which its reader has to refuse.
        """
        parts = INSERT.fullmatch(self.text)
        if parts is None:
            raise ValueError("only an INSERT has a row of values to repeat")
        head, row, tail = parts.groups(b"")
        texts = (row % tuple(literal(values[name]) for name in self.names) for values in rows)
        return (head + b",".join(some) + tail for some in _chunks(texts, largest - len(head) - len(tail)))


def templates() -> Mapping[str, Template]:
    """Every statement of this engine by its name."""
    return {name: template(statement) for name, statement in dialect.statements().items()}


def template(statement: Statement) -> Template:
    """One statement, ready to be filled."""
    text, names = statement.with_format_params()
    return Template(text.encode(), names)


def literal(value: Any) -> bytes:
    """A value as it stands in a statement; a list of integers as what IN asks for.

    Safe in the sessions opened here: their text is UTF-8, in which no other character contains the byte of a quote or
    a backslash, and their sql_mode lets a backslash escape. Refuses with `TypeError` what has no literal.
    """
    match value:
        case None:
            return b"NULL"
        case int():
            return b"%d" % value
        case str():
            return b"'%s'" % _escaped(value.encode())
        case bytes():
            return b"_binary'%s'" % _escaped(value)
        case list():
            return b"(%s)" % b",".join(b"%d" % number for number in cast("list[int]", value))
        case _:
            raise TypeError(f"a {type(value).__name__} has no literal in SQL")


def rows_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as the JSON that a statement reads with JSON_TABLE: None is left out and reads as NULL, bytes are base64."""
    return _encode([{key: value for key, value in row.items() if value is not None} for row in rows]).decode()


def numbers_json(numbers: Sequence[int]) -> str:
    """A list of numbers as such JSON."""
    return _encode(numbers).decode()


def _escaped(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def _chunks(texts: Iterable[bytes], largest: int) -> Iterable[list[bytes]]:
    """The texts in order, as many at a time as together, with commas between them, are no larger than that."""
    chunk: list[bytes] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > largest:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text) + 1
    if chunk:
        yield chunk
