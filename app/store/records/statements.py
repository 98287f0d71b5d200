"""Reads the named SQL statements of an engine and puts them into the form that its driver takes.

Statements of all engines are in common.sql, those of one engine in the statements.sql of its folder.

A file is a row of blocks. A block begins with a line `-- name: its purpose` and holds one statement. A parameter is
`:name`. What the engines spell differently, or what must be spelled the same everywhere, is one of these words:

`@now`            the store's clock in microseconds; on SQLite the parameter `:now`, which its one process supplies
`@in(:numbers)`   among a list of integers, handed over as a Python list that is not empty
`@for_update`     lock the rows that are read; nothing on SQLite, where only one writer runs at a time
`@skip_locked`    the same, leaving out rows that another transaction holds
`@message`, `@outline`, `@held`, `@tombstone`, `@batch`, `@queue`, `@api_key`
                  the columns of which rows.py makes these values, in its order; `@m.message` names them of `m`
`@archived`       the columns that a message and the archive share
`@row_digest`     the digest of a row of the archive (`row_digest` over `DIGESTED_COLUMNS`), in hexadecimal
`@light`          `@message` without body and properties where these are large, and the weight at the end; on MySQL
`@m.weight`       the bytes that a message of `m` counts for, as `weight_of` has it
`@outlines(name)` the statement of this name in the same file, with `@outline` in the place of `@message`
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.store.records import rows
from app.store.records.digest_columns import DIGESTED_COLUMNS, DigestKind


@dataclass(frozen=True)
class Dialect:
    """How one engine writes what the engines write differently, and the text of its own statements.

    `digest_terms` are the terms of each kind of column in the digest of a row, and `row_digest` is what stands before,
    between and after them. `text_length` and `bytes_length` count bytes.
    """

    name: str
    statements: str
    now: str
    in_list: str
    for_update: str
    skip_locked: str
    digest_terms: Mapping[DigestKind, str]
    row_digest: tuple[str, str, str]
    text_length: str = "OCTET_LENGTH({})"
    bytes_length: str = "OCTET_LENGTH({})"


COLUMNS = {
    "message": rows.MESSAGE_COLUMNS,
    "light": (*rows.LIGHT_COLUMNS, "weight"),
    "outline": rows.METADATA_COLUMNS,
    "archived": rows.ARCHIVED_COLUMNS,
    "held": rows.LOCKED_COLUMNS,
    "tombstone": rows.TOMBSTONE_COLUMNS,
    "batch": rows.BATCH_COLUMNS,
    "queue": rows.QUEUE_COLUMNS,
    "api_key": rows.API_KEY_COLUMNS,
}

INLINE_LIMIT = 8 << 10
"""Bytes of a body and properties that come with their row when it is looked at: a thousand rows have no more than
8 MiB, and most messages are smaller."""

COMPUTED_COLUMNS = {
    "read_at": "@now AS read_at",
    "body_bytes": "LENGTH(body) AS body_bytes",
    "light_body": f"IF(@weight <= {MESSAGE_OVERHEAD_BYTES + INLINE_LIMIT}, body, NULL) AS body",
    "light_properties": f"IF(@weight <= {MESSAGE_OVERHEAD_BYTES + INLINE_LIMIT}, properties, NULL) AS properties",
    "weight": "@weight AS weight",
}
"""What is no column of the table; the length is told without reading the body."""

HEADING = re.compile(r"^-- ([a-z][a-z_0-9]*): (.+)$", re.MULTILINE)
COMMENT = re.compile(r"(?<![ \t])[ \t]*--.*$", re.MULTILINE)
OUTLINES_MACRO = re.compile(r"@outlines\(([a-z_]+)\)")
MESSAGE_MACRO = re.compile(r"@((?:[a-z]+\.)?)message\b")
WEIGHT_MACRO = re.compile(r"@([a-z]+\.)?weight\b")
IN_MACRO = re.compile(r"@in\((:[a-z_]+)\)")
COLUMNS_MACRO = re.compile(r"@(?:([a-z]+)\.)?(" + "|".join(COLUMNS) + r")\b")
# A colon that follows another one is a cast of PostgreSQL.
PARAMETER = re.compile(r"(?<!:):([a-z][a-z_0-9]*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement of one engine, with its parameters still as `:name`, the form SQLite takes."""

    name: str
    purpose: str
    text: str

    @property
    def is_read_only(self) -> bool:
        """Whether it only looks, so that a connection for readers may run it."""
        return self.text.startswith("SELECT") and "FOR UPDATE" not in self.text

    def with_numbered_params(self) -> tuple[str, tuple[str, ...]]:
        """The text with `$1`, `$2` ... (asyncpg), and the names in the order of their numbers."""
        names = tuple(dict.fromkeys(PARAMETER.findall(self.text)))
        numbers = {name: f"${place}" for place, name in enumerate(names, 1)}
        return PARAMETER.sub(lambda match: numbers[match[1]], self.text), names

    def with_format_params(self) -> tuple[str, tuple[str, ...]]:
        """The text with `%s` (asyncmy), and the names in the order they are wanted, repeated where they repeat."""
        names = tuple(PARAMETER.findall(self.text))
        return PARAMETER.sub("%s", self.text.replace("%", "%%")), names


def load(dialect: Dialect) -> Mapping[str, Statement]:
    """All statements of an engine; one of its own file stands in for one of the same name in common.sql."""
    common = (files("app.store.records") / "common.sql").read_text("utf-8")
    return {statement.name: statement for text in (common, dialect.statements) for statement in parse(text, dialect)}


def parse(text: str, dialect: Dialect) -> list[Statement]:
    """The statements of one file, in order. A name used twice is a mistake and refused."""
    _, *parts = HEADING.split(text)
    names, purposes, bodies = parts[0::3], parts[1::3], parts[2::3]
    if len(set(names)) < len(names):
        raise ValueError(f"{dialect.name}: a statement is named twice among {sorted(names)}")
    by_name = dict(zip(names, bodies, strict=True))
    expanded = [
        OUTLINES_MACRO.sub(lambda match: MESSAGE_MACRO.sub(r"@\1outline", by_name[match[1]]), body) for body in bodies
    ]
    return [
        Statement(name, purpose, render(body, dialect))
        for name, purpose, body in zip(names, purposes, expanded, strict=True)
    ]


def render(body: str, dialect: Dialect) -> str:
    """One statement as the engine says it, without comments, trailing semicolon or blank lines."""
    text = COMMENT.sub("", body)
    text = COLUMNS_MACRO.sub(lambda match: _columns(match[2], match[1]), text)
    text = WEIGHT_MACRO.sub(lambda match: _weight(match[1] or "", dialect), text)
    text = IN_MACRO.sub(dialect.in_list, text)
    text = text.replace("@row_digest", _row_digest(dialect)).replace("@now", dialect.now)
    text = text.replace("@for_update", dialect.for_update).replace("@skip_locked", dialect.skip_locked)
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line).removesuffix(";")


def _row_digest(dialect: Dialect) -> str:
    begin, between, end = dialect.row_digest
    fields = (dialect.digest_terms[kind].format(column) for column, kind in DIGESTED_COLUMNS.items())
    return begin + between.join(fields) + end


def _weight(prefix: str, dialect: Dialect) -> str:
    body, properties = dialect.bytes_length.format(f"{prefix}body"), dialect.text_length.format(f"{prefix}properties")
    return f"{MESSAGE_OVERHEAD_BYTES} + {body} + COALESCE({properties}, 0)"


def _columns(kind: str, table: str | None) -> str:
    prefix = f"{table}." if table else ""
    columns = ", ".join(COMPUTED_COLUMNS.get(column, prefix + column) for column in COLUMNS[kind])
    return columns.replace("@weight", f"@{prefix}weight")
