"""SQLite's syntax where engines differ, and its own statements."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from app.store.records.digest_columns import DigestKind
from app.store.records.statements import Dialect, Statement, load

DIALECT = Dialect(
    name="sqlite",
    statements=(files("app.store.sqlite") / "statements.sql").read_text("utf-8"),
    now=":now",
    in_list=r"IN (SELECT value FROM json_each(\1))",
    # Only one writer runs at a time.
    for_update="",
    skip_locked="",
    # A Python function of this process encodes the values.
    digest_terms={
        DigestKind.NUMBER: "{0}",
        DigestKind.TEXT: "{0}",
        DigestKind.BYTES: "{0}",
        DigestKind.BODY: "sha256_hex({0})",
    },
    row_digest=("row_digest(", ", ", ")"),
    # LENGTH counts the characters of a text, and only new versions have OCTET_LENGTH.
    text_length="LENGTH(CAST({} AS BLOB))",
    # Read from the header of the row, without the bytes themselves.
    bytes_length="LENGTH({})",
)


@cache
def statements() -> Mapping[str, Statement]:
    """Return all statements of this engine by name."""
    return load(DIALECT)
