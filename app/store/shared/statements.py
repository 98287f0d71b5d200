"""Reads the named SQL statements of an engine and renders them for its driver.

`common.sql` has the statements of all engines. `statements.sql` in an engine's folder has its own.

A file is a sequence of blocks. A block begins with a line `-- name: purpose` and holds one statement. A block that begins
with `-- @name: purpose` holds text that statements of the file share: `@name` stands for it. A parameter is written
`:name`. These macros stand for text that differs between engines, or that must be the same everywhere:

`@now`                the store's clock in microseconds; on SQLite the parameter `:now`, which its one process supplies
`@in(:numbers)`       a test for membership in a list of integers, passed as a Python list that is not empty
`@in_groups(:groups)` a test whether a message is of one of these groups, as `write_groups` writes them
`@for_update`         lock the rows that are read; empty on SQLite, where only one writer runs at a time
`@skip_locked`        the same, but skip rows that another transaction has locked
`@index(name)`        after a table: read it by this index or, if `PRIMARY`, by its primary key; only MySQL needs to be told
`@then_join`          `JOIN`, with the table on its left read first
`@unindexed(column)`  the column, with null as 0, in a condition that chooses no index
`@delete_first(table, key)`
                      at the beginning of a statement: delete the rows of this table, with this primary key, that the
                      rest selects with `WHERE`, `ORDER BY` and `LIMIT`, except those that a transaction has locked
`@replicated`         true for each row; on PostgreSQL its evaluation makes the commit wait until the synchronous standbys
                      have what was read, even if the transaction that wrote it did not wait for them
`@message`, `@metadata`, `@locked_message`, `@facts`, `@event`, `@tombstone`, `@batch`, `@queue`, `@topic`,
`@subscription`, `@api_key`, `@transaction`, `@member`, `@move_task`
                      the columns from which `message_rows.py`, `rows.py` and `transaction_rows.py` make these values, in
                      the order of their `*_COLUMNS`; `@m.message` is those of table `m`
`@ended`              the columns from which `message_rows.py` makes a message of the archive
`@archived`           the columns that a message and the archive share
`@row_digest`         the digest of a row of the archive (`row_digest` over `DIGESTED_COLUMNS`), in hexadecimal
`@event_digest`       the digest of an event (`row_digest` over `DIGESTED_EVENT_COLUMNS`), in hexadecimal
`@feature_level`      the newest feature level that this version knows; a queue of a higher one is left to newer servers
`@newer_queues`       the ids of these queues, as a subquery in parentheses
`@stored_message`     `@message` with an empty body if the message has a shared one; SQLite only
`@inline_message`     `@message` with null for a large body and properties, followed by the weight; MySQL only
`@m.weight`           the bytes that a message of `m` counts for, computed as `weight_of` does
`@m.body`             the body of a row of `m`: its own or, if it has none of its own, the shared one
`@m.body_bytes`       the bytes of that body, computed without reading it
`@metadata_of(name)`  the statement of this name in the same file, with `@metadata` instead of `@message`
`@table(a int, b text) AS t`
                      a table of these columns and `entry_index`, from arrays as `entry_columns` makes them: one array
                      of a single value stands for a column of equal values; PostgreSQL only
`@entries(a int, b text) AS t`
                      the same for the values of many callers. The block defines two statements. The second one has
                      `_one` after its name and takes the values of a single caller as scalars.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from app.domain.queue import FEATURE_LEVEL
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.store.shared import message_rows, rows, transaction_rows
from app.store.shared.digest_columns import DIGESTED_COLUMNS, DIGESTED_EVENT_COLUMNS, DigestKind


@dataclass(frozen=True)
class Dialect:
    """The syntax in which one engine differs from the others, and its statements. Its name is that of its folder.

    `digest_terms` are the terms of each kind of column in the digest of a row. `row_digest` is the text before, between
    and after them. `delete_first` names the `table`, its `key`, the `rows` to select, and `same_key`, which joins the table
    with `first_rows`. `text_length` and `bytes_length` count bytes.
    """

    name: str
    now: str
    in_list: str
    in_groups: str
    for_update: str
    skip_locked: str
    delete_first: str
    digest_terms: Mapping[DigestKind, str]
    row_digest: tuple[str, str, str]
    then_join: str
    index: str = ""
    unindexed: str = r"COALESCE(\1, 0)"
    replicated: str = "TRUE"
    text_length: str = "OCTET_LENGTH({})"
    bytes_length: str = "OCTET_LENGTH({})"

    @property
    def own_text(self) -> str:
        """The text of the engine's own statements."""
        return (files(f"app.store.{self.name}") / "statements.sql").read_text("utf-8")

    @cached_property
    def statements(self) -> Mapping[str, "Statement"]:
        """All statements by name. An own statement replaces one of the same name in common.sql."""
        texts = ((files("app.store.shared") / "common.sql").read_text("utf-8"), self.own_text)
        return {statement.name: statement for text in texts for statement in parse(text, self)}


COLUMNS = {
    "message": tuple("whole_body" if name == "body" else name for name in message_rows.MESSAGE_COLUMNS),
    "stored_message": message_rows.MESSAGE_COLUMNS,
    "inline_message": (*message_rows.INLINE_COLUMNS, "weight"),
    "metadata": message_rows.METADATA_COLUMNS,
    "archived": message_rows.ARCHIVED_COLUMNS,
    "ended": message_rows.ENDED_COLUMNS,
    "locked_message": rows.LOCKED_COLUMNS,
    "facts": rows.FACTS_COLUMNS,
    "event": rows.EVENT_COLUMNS,
    "tombstone": rows.TOMBSTONE_COLUMNS,
    "batch": rows.BATCH_COLUMNS,
    "queue": rows.QUEUE_COLUMNS,
    "topic": rows.TOPIC_COLUMNS,
    "subscription": rows.SUBSCRIPTION_COLUMNS,
    "api_key": rows.API_KEY_COLUMNS,
    "transaction": transaction_rows.TRANSACTION_COLUMNS,
    "member": transaction_rows.MEMBER_COLUMNS,
    "move_task": rows.MOVE_TASK_COLUMNS,
}

INLINE_LIMIT = 8 << 10
"""Bytes of a body and properties that a row read for inspection includes. A thousand rows have at most 8 MiB, and most
messages are smaller."""

COMPUTED_COLUMNS = {
    "read_at": "@now AS read_at",
    "in_transaction": """(
    SELECT 1 FROM transaction_member AS joined
    WHERE joined.sequence_number = message.sequence_number AND joined.lock_token = message.lock_token
    LIMIT 1
) AS in_transaction""",
    "whole_body": "@body AS body",
    "body_bytes": "@body_bytes AS body_bytes",
    # Never a shared one: this statement locks rows that are newer than its snapshot, in which their body is missing.
    "inline_body": (
        f"IF(shared_body_id IS NULL AND @weight <= {MESSAGE_OVERHEAD_BYTES + INLINE_LIMIT}, body, NULL) AS body"
    ),
    "inline_properties": f"IF(@weight <= {MESSAGE_OVERHEAD_BYTES + INLINE_LIMIT}, properties, NULL) AS properties",
    "weight": "@weight AS weight",
}
"""Expressions that are no columns of the table."""

BODY = """CASE WHEN {0}shared_body_id IS NULL THEN {0}body ELSE (
    SELECT shared.body FROM shared_body AS shared WHERE shared.id = {0}shared_body_id
) END"""

NEWER_QUEUES = "(SELECT id FROM queue WHERE feature_level > 0 AND feature_level > @feature_level)"
"""The first condition is that of the partial index, which is empty unless a setting of a later level is in use."""

HEADING = re.compile(r"^-- (@?[a-z][a-z_0-9]*): (.+)$", re.MULTILINE)
COMMENT = re.compile(r"(?<![ \t])[ \t]*--.*$", re.MULTILINE)
METADATA_MACRO = re.compile(r"@metadata_of\(([a-z_]+)\)")
MESSAGE_MACRO = re.compile(r"@((?:[a-z]+\.)?)message\b")
CONTENT_MACRO = re.compile(r"@([a-z]+\.)?(weight|body_bytes|body)\b")
TABLE_MACRO = re.compile(r"@(?:entries|table)\(([^()]*)\) AS ([a-z]+)\b")
GROUPS_MACRO = re.compile(r"@in_groups\((:[a-z_]+)\)")
DELETE_MACRO = re.compile(r"@delete_first\(([a-z_]+), ([a-z_, ]+)\)([^;]+);?")
INDEX_MACRO = re.compile(r" @index\(([A-Za-z_]+)\)")
UNINDEXED_MACRO = re.compile(r"@unindexed\(([a-z_]+)\)")
IN_MACRO = re.compile(r"@in\((:[a-z_]+)\)")
BLOCK_MACRO = re.compile(r"@[a-z][a-z_0-9]*")
COLUMNS_MACRO = re.compile(r"@(?:([a-z]+)\.)?(" + "|".join(COLUMNS) + r")\b")
# A colon that follows another one is a PostgreSQL cast.
PARAMETER = re.compile(r"(?<!:):([a-z][a-z_0-9]*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement of one engine. Its parameters are still written `:name`, the form that SQLite takes."""

    name: str
    purpose: str
    text: str

    @property
    def is_read_only(self) -> bool:
        """Return whether it only reads, so that a reader's connection may run it."""
        return self.text.startswith("SELECT") and "FOR UPDATE" not in self.text

    def with_numbered_params(self) -> tuple[str, tuple[str, ...]]:
        """Return the text with `$1`, `$2` ... (asyncpg), and the names in the order of their numbers."""
        names = tuple(dict.fromkeys(PARAMETER.findall(self.text)))
        numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
        return PARAMETER.sub(lambda match: numbers[match[1]], self.text), names

    def with_format_params(self) -> tuple[str, tuple[str, ...]]:
        """Return the text with `%s` (asyncmy), and the names in order of use, repeated as often as they are used."""
        names = tuple(PARAMETER.findall(self.text))
        return PARAMETER.sub("%s", self.text.replace("%", "%%")), names


def parse(text: str, dialect: Dialect) -> list[Statement]:
    """Return the statements of one file, in order. A name used twice raises `ValueError`."""
    _, *parts = HEADING.split(text)
    names, purposes, bodies = parts[0::3], parts[1::3], parts[2::3]
    if len(set(names)) < len(names):
        raise ValueError(f"{dialect.name}: a block is named twice among {sorted(names)}")
    by_name = dict(zip(names, bodies, strict=True))
    return [
        Statement(form_name, purpose, render(form, dialect))
        for name, purpose in zip(names, purposes, strict=True)
        if not name.startswith("@")
        for form_name, form in _forms(name, _expand(by_name[name], by_name))
    ]


def _expand(body: str, by_name: Mapping[str, str]) -> str:
    """Return the body of a statement with the text of the other blocks that it names."""
    body = METADATA_MACRO.sub(lambda match: MESSAGE_MACRO.sub(r"@\1metadata", by_name[match[1]]), body)
    return BLOCK_MACRO.sub(lambda match: by_name.get(match[0], match[0]).strip(), body)


def _forms(name: str, body: str) -> list[tuple[str, str]]:
    """Return the name and body of a statement and, if it has `@entries`, of its form for a single caller."""
    many = (name, TABLE_MACRO.sub(_table, body))
    return [many, (f"{name}_one", TABLE_MACRO.sub(_single_entry, body))] if "@entries(" in body else [many]


def _table(macro: re.Match[str]) -> str:
    columns = _table_columns(macro)
    arrays = ", ".join(f":{name}::{kind}[]" for name, kind in columns)
    names = ", ".join(name for name, _ in columns)
    values = ", ".join(
        f"CASE cardinality(:{name}::{kind}[]) WHEN 1 THEN (:{name}::{kind}[])[1] ELSE {name} END AS {name}"
        for name, kind in columns
    )
    unnested = f"unnest({arrays}) WITH ORDINALITY AS unnested ({names}, entry_index)"
    return f"(SELECT {values}, entry_index FROM {unnested}) AS {macro[2]}"


def _single_entry(macro: re.Match[str]) -> str:
    values = ", ".join(f":{name}::{kind} AS {name}" for name, kind in _table_columns(macro))
    return f"(SELECT {values}, 1 AS entry_index) AS {macro[2]}"


def _table_columns(macro: re.Match[str]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in map(str.split, macro[1].split(","))]


def render(body: str, dialect: Dialect) -> str:
    """Return one statement in the engine's syntax, without comments, trailing semicolon or blank lines."""
    text = COMMENT.sub("", body)
    text = COLUMNS_MACRO.sub(lambda match: _columns(match[2], match[1]), text)
    text = CONTENT_MACRO.sub(lambda match: _content(match[2], match[1] or "", dialect), text)
    text = GROUPS_MACRO.sub(dialect.in_groups, IN_MACRO.sub(dialect.in_list, text))
    text = DELETE_MACRO.sub(lambda match: _delete_first(match, dialect), text)
    text = UNINDEXED_MACRO.sub(dialect.unindexed, INDEX_MACRO.sub(dialect.index, text))
    text = text.replace("@then_join", dialect.then_join)
    text = text.replace("@newer_queues", NEWER_QUEUES).replace("@feature_level", str(FEATURE_LEVEL))
    text = text.replace("@row_digest", _row_digest(dialect, DIGESTED_COLUMNS))
    text = text.replace("@event_digest", _row_digest(dialect, DIGESTED_EVENT_COLUMNS)).replace("@now", dialect.now)
    text = text.replace("@for_update", dialect.for_update).replace("@skip_locked", dialect.skip_locked)
    text = text.replace("@replicated", dialect.replicated)
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line).removesuffix(";")


def _delete_first(macro: re.Match[str], dialect: Dialect) -> str:
    table, key, rows = macro.groups()
    same_key = " AND ".join(f"{table}.{column} = first_rows.{column}" for column in key.split(", "))
    return dialect.delete_first.format(table=table, key=key, rows=rows, same_key=same_key)


def _row_digest(dialect: Dialect, columns: Mapping[str, DigestKind]) -> str:
    begin, between, end = dialect.row_digest
    values = {"body": BODY.format("")}
    fields = (dialect.digest_terms[kind].format(values.get(name, name)) for name, kind in columns.items())
    return begin + between.join(fields) + end


def _content(macro: str, prefix: str, dialect: Dialect) -> str:
    """Return the body of a row of this table, its bytes, or the weight of the message."""
    if macro == "body":
        return BODY.format(prefix)
    body_bytes = f"COALESCE({prefix}shared_body_bytes, {dialect.bytes_length.format(f'{prefix}body')})"
    if macro == "body_bytes":
        return body_bytes
    return f"{MESSAGE_OVERHEAD_BYTES} + {body_bytes} + COALESCE({dialect.text_length.format(f'{prefix}properties')}, 0)"


def _columns(kind: str, table: str | None) -> str:
    prefix = f"{table}." if table else ""
    columns = ", ".join(COMPUTED_COLUMNS.get(column, prefix + column) for column in COLUMNS[kind])
    return CONTENT_MACRO.sub(rf"@{prefix}\2", columns)
