"""Named statements with their values written in, as MariaDB and MySQL parse them.

Values are part of the text, because only then can several statements share one round trip, and one statement have a
varying number of rows. The driver can do the same, but takes thirty times as long over a body of 1 KiB.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from app.store.mysql.dialect import DIALECT
from app.store.shared.statements import Statement

INSERT = re.compile(rb"(.*?\nVALUES )(.*?)(\nON DUPLICATE KEY .*)?", re.DOTALL)
"""An INSERT: the text before the one row of values that it repeats, the row, and the text after it."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Template:
    """A statement as bytes with `%s` for each value, and the names of the values in that order."""

    text: bytes
    names: tuple[str, ...]

    def render(self, values: Mapping[str, Any]) -> bytes:
        """Return the statement with these values."""
        return self.text % tuple(literal(values[name]) for name in self.names)

    def render_inserts(self, rows: Iterable[Mapping[str, Any]], largest: int) -> Iterable[bytes]:
        """Return the INSERT with all these rows, in their order, in as few statements of at most `largest` bytes.

        A single row that is larger makes a larger statement, which the session refuses.
        """
        parts = INSERT.fullmatch(self.text)
        if parts is None:
            raise ValueError("only an INSERT has a row of values to repeat")
        head, row, tail = parts.groups(b"")
        texts = (row % tuple(literal(values[name]) for name in self.names) for values in rows)
        return (head + b",".join(some) + tail for some in _chunks(texts, largest - len(head) - len(tail)))


def templates() -> Mapping[str, Template]:
    """Return every statement of this engine by name."""
    return {name: template(statement) for name, statement in DIALECT.statements.items()}


def template(statement: Statement) -> Template:
    """Return the template of one statement."""
    text, names = statement.with_format_params()
    return Template(text.encode(), names)


def literal(value: Any) -> bytes:
    """Return a value as an SQL literal; a list of integers as the operand of IN.

    Safe in the sessions opened here: their text is UTF-8, in which no other character contains the byte of a quote or
    a backslash, and their sql_mode lets a backslash escape. Raises `TypeError` for a value without a literal.
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
    """Return rows as JSON for JSON_TABLE. None is left out and reads as NULL; bytes are base64."""
    return _encode([{key: value for key, value in row.items() if value is not None} for row in rows]).decode()


def numbers_json(numbers: Sequence[int]) -> str:
    """Return a list of numbers as JSON for JSON_TABLE."""
    return _encode(numbers).decode()


def _escaped(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def _chunks(texts: Iterable[bytes], largest: int) -> Iterable[list[bytes]]:
    """Return the texts in order, in groups that with commas between them have at most `largest` bytes."""
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
